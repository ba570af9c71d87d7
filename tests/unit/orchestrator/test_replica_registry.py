"""Which parked replicas are told to load their program, how many processes are asked for, and what is measured."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.models.status import ProgramState, ReplicaState, StatusBoard
from dyorc.orchestrator.replica_registry import ReplicaRegistry
from dyorc.transport.messages import Message, Park, Parked, ReplicaHello, Warm
from dyorc.transport.tiers import TensorHolder
from tests.deadlines import TIMEOUT_S, wait_until_async

pytestmark = pytest.mark.anyio


@dyorc.program(num_replicas=2)
def double(x: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
    return x * 2


@dataclass
class Troupe:
    """Replicas that do as they are told when the test says so."""

    status: StatusBoard = field(default_factory=lambda: StatusBoard([double]))
    told: list[tuple[str, Message]] = field(default_factory=list[tuple[str, Message]])
    asked: list[int] = field(default_factory=list[int])
    dismissed: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.roster = ReplicaRegistry(
            self.status,
            lambda name, message: self.told.append((name, message)),
            lambda _, n: self.asked.append(n),
            self.dismissed.append,
        )

    def park(self, name: str, node: str = "here") -> None:
        self.roster.replica_parked(Parked(name, "double", 1, TensorHolder(name, node, "")))

    def join(self, name: str, load_s: float = 0.5, node: str = "here") -> bool:
        return self.roster.replica_ready(ReplicaHello(name, "double", 1, TensorHolder(name, node, ""), load_s=load_s))

    def states(self) -> dict[str, ReplicaState]:
        return {name: one.state for name, one in self.status.programs["double"].replicas.items()}

    def warmed(self) -> list[str]:
        return [name for name, message in self.told if isinstance(message, Warm)]


async def test_as_long_as_nothing_is_wanted_every_replica_loads_its_program() -> None:
    troupe = Troupe()
    for name in "abc":
        troupe.park(name)
    assert troupe.warmed() == ["a", "b", "c"]
    assert troupe.asked == []


async def test_as_many_replicas_load_as_are_wanted_the_longest_parked_first() -> None:
    troupe = Troupe()
    troupe.roster.want("double", 1, 2)
    for name in "abc":
        troupe.park(name)
    assert troupe.warmed() == ["a"]
    assert troupe.asked == [3]
    troupe.join("a")
    troupe.roster.want("double", 2, 1)
    assert troupe.warmed() == ["a", "b"]
    assert troupe.asked == [3], "there are enough processes"


async def test_on_several_nodes_that_replica_is_warmed_whose_node_has_read_the_weights() -> None:
    troupe = Troupe()
    troupe.roster.want("double", 1, 2)
    troupe.park("a", "far")
    troupe.join("a", node="far")
    troupe.park("b")
    troupe.park("c", "far")
    troupe.roster.want("double", 2, 1)
    assert troupe.warmed() == ["a", "c"]


async def test_on_several_nodes_that_replica_is_warmed_whose_node_holds_what_waits() -> None:
    troupe = Troupe()
    troupe.roster.want("double", 0, 2)
    troupe.park("a")
    troupe.park("b", "far")
    troupe.status.programs["double"].waiting_bytes = {"far": 2**20}
    troupe.roster.want("double", 1, 1)
    assert troupe.warmed() == ["b"]


async def test_a_parked_replica_takes_the_place_of_one_that_dies_ready_or_loading() -> None:
    troupe = Troupe()
    troupe.roster.want("double", 1, 2)
    for name in "abc":
        troupe.park(name)
    troupe.roster.replica_left("a")
    assert troupe.warmed() == ["a", "b"]
    troupe.join("b")
    troupe.roster.replica_left("b")
    assert troupe.warmed() == ["a", "b", "c"]


async def test_a_replica_should_end_if_it_says_so_or_if_fewer_processes_are_ordered() -> None:
    troupe = Troupe()
    for name in "abc":
        troupe.park(name)
    assert not troupe.roster.should_end("a"), "nobody has given a number yet"
    troupe.roster.want("double", 1, 2)
    assert not troupe.roster.should_end("a")
    troupe.roster.replica_leaving("a", TIMEOUT_S)
    assert [troupe.roster.should_end(name) for name in "ab"] == [True, False]
    troupe.roster.want("double", 1, 1)
    assert troupe.roster.should_end("b")
    troupe.roster.replica_left("b")
    assert not troupe.roster.should_end("c"), "there are as many as are wanted"
    troupe.roster.want("double", 0, 0)
    assert troupe.roster.should_end("c")


async def test_a_replica_that_is_let_go_does_not_join_by_what_it_said_before() -> None:
    troupe = Troupe()
    troupe.park("a")
    assert troupe.join("a")
    troupe.roster.want("double", 0, 1)
    assert troupe.status.programs["double"].state is ProgramState.READY, "the engine decides when it goes"
    troupe.roster.park("a")
    assert troupe.told[-1] == ("a", Park())
    assert not troupe.join("a"), "it said so before it was told"
    troupe.park("a")
    assert troupe.states() == {"a": ReplicaState.PARKED}
    assert troupe.status.programs["double"].state is ProgramState.PARKED
    assert troupe.warmed() == ["a"]


async def test_a_replica_that_leaves_takes_batches_until_a_parked_one_has_taken_its_place() -> None:
    troupe = Troupe()
    troupe.roster.want("double", 1, 1)
    for name in "ab":
        troupe.park(name)
    troupe.join("a")
    troupe.roster.replica_leaving("a", TIMEOUT_S)
    assert troupe.warmed() == ["a", "b"]
    assert troupe.dismissed == []
    assert troupe.status.programs["double"].state is ProgramState.READY
    troupe.join("b")
    assert troupe.dismissed == ["a"]


async def test_a_replica_that_leaves_goes_at_once_if_enough_others_take_batches() -> None:
    troupe = Troupe()
    troupe.roster.want("double", 1, 1)
    for name in "ab":
        troupe.park(name)
        troupe.join(name)
    troupe.roster.replica_leaving("a", TIMEOUT_S)
    assert troupe.dismissed == ["a"]


async def test_a_replica_that_leaves_waits_for_the_one_that_serve_starts_in_its_place() -> None:
    troupe = Troupe()
    troupe.roster.want("double", 1, 0)
    troupe.park("a")
    troupe.join("a")
    troupe.roster.replica_leaving("a", TIMEOUT_S)
    assert troupe.dismissed == []
    troupe.park("b")
    troupe.join("b")
    assert troupe.dismissed == ["a"]


async def test_a_replica_that_leaves_goes_after_half_of_its_time() -> None:
    troupe = Troupe()
    troupe.roster.want("double", 1, 1)
    for name in "ab":
        troupe.park(name)
    troupe.join("a")
    troupe.roster.replica_leaving("a", 0.1)
    await wait_until_async(lambda: troupe.dismissed == ["a"], "it goes")


async def test_a_replica_that_leaves_while_it_loads_takes_no_batches() -> None:
    troupe = Troupe()
    troupe.roster.want("double", 1, 0)
    troupe.park("a")
    troupe.roster.replica_leaving("a", TIMEOUT_S)
    assert not troupe.join("a")
    assert troupe.told[-1] == ("a", Park())
    troupe.park("a")
    assert troupe.warmed() == ["a"]


async def test_a_parked_replica_that_leaves_is_let_go_and_told_nothing_more() -> None:
    troupe = Troupe()
    troupe.roster.want("double", 0, 2)
    for name in "ab":
        troupe.park(name)
    troupe.roster.replica_leaving("a", TIMEOUT_S)
    assert troupe.told == [("a", Park())]
    troupe.roster.want("double", 2, 0)
    assert troupe.warmed() == ["b"]


async def test_a_replica_wanted_again_while_it_drops_its_program_loads_it_afterwards() -> None:
    troupe = Troupe()
    troupe.park("a")
    troupe.join("a")
    troupe.roster.want("double", 0, 1)
    troupe.roster.park("a")
    troupe.roster.want("double", 1, 0)
    assert troupe.warmed() == ["a"]
    troupe.park("a")
    assert troupe.warmed() == ["a", "a"]


async def test_after_a_failed_load_a_replica_is_told_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dyorc.orchestrator.replica_registry._RETRY_S", 0.01)
    troupe = Troupe()
    troupe.park("a")
    troupe.roster.load_failed("double", "no weights")
    troupe.park("a")
    assert troupe.warmed() == ["a"], "not at once"
    assert troupe.status.programs["double"].state is ProgramState.FAILING
    await wait_until_async(lambda: troupe.warmed() == ["a", "a"], "it is told again")
    assert troupe.status.programs["double"].state is ProgramState.LOADING
    troupe.join("a")
    assert troupe.status.programs["double"].error == ""
    troupe.roster.close()


async def test_the_next_failure_waits_twice_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda delay_s, *_: delays.append(delay_s) or _Timer())
    troupe = Troupe()
    for _ in range(9):
        troupe.roster.load_failed("double", "no weights")
    assert delays == [0.25, 0.5, 1, 2, 4, 8, 16, 30, 30]


class _Timer:
    def cancel(self) -> None:
        pass


async def test_what_is_there_is_counted_by_state_and_how_long_it_took_is_measured() -> None:
    troupe = Troupe()
    status = troupe.status.programs["double"]
    assert status.counts().starting == 2
    assert status.lead is None
    troupe.roster.replica_parked(Parked("a", "double", 1, TensorHolder("a", "here", ""), start_s=2.0))
    troupe.join("a", load_s=0.5)
    assert status.lead is not None
    assert (status.lead.from_parked_s, status.lead.from_cold_s) == (0.5, 2.5)
    troupe.roster.want("double", 1, 2)
    troupe.park("b")
    counts = status.counts()
    assert (counts.warm, counts.warming, counts.parked, counts.starting) == (1, 0, 1, 1)


def sharing(num_gpus: float) -> Troupe:
    """Returns replicas of two programs that need so much of a device each."""
    options = {"num_gpus": num_gpus}
    programs = [double.with_options(name=name, num_replicas=1, ray_actor_options=options) for name in ("one", "two")]
    return Troupe(StatusBoard(programs))


def on_device(troupe: Troupe, program: str, device: str = "0") -> None:
    """Has the only replica of a program say that it is parked on a device."""
    troupe.roster.replica_parked(Parked(program, program, 1, TensorHolder(program, "here", ""), device=device))


async def test_two_replicas_that_do_not_fit_on_a_device_hold_their_programs_by_turns() -> None:
    troupe = sharing(0.6)
    for program in ("one", "two"):
        troupe.roster.want(program, 1, 0)
        on_device(troupe, program)
    assert troupe.warmed() == ["one"]
    troupe.roster.replica_ready(ReplicaHello("one", "one", 1, TensorHolder("one", "here", "")))
    troupe.roster.want("one", 0, 1)
    troupe.roster.park("one")
    assert troupe.warmed() == ["one"], "it has not let go yet"
    on_device(troupe, "one")
    assert troupe.warmed() == ["one", "two"]
    troupe.roster.want("one", 1, 0)
    assert troupe.warmed() == ["one", "two"]
    troupe.roster.replica_left("two")
    assert troupe.warmed() == ["one", "two", "one"]


@pytest.mark.parametrize(("num_gpus", "device"), [(0.5, "0"), (0.6, "1"), (1.0, "1")])
async def test_replicas_that_fit_on_a_device_or_have_another_hold_their_programs_together(num_gpus: float, device: str) -> None:
    troupe = sharing(num_gpus)
    on_device(troupe, "one")
    on_device(troupe, "two", device)
    assert troupe.warmed() == ["one", "two"]


async def test_a_replica_on_a_device_that_others_need_is_replaced_elsewhere_before_it_goes() -> None:
    troupe = sharing(0.6)
    one, two = (troupe.status.programs[name] for name in ("one", "two"))
    troupe.roster.want("one", 1, 1)
    for replica_id, device in (("here", "0"), ("there", "1")):
        troupe.roster.replica_parked(Parked(replica_id, "one", 1, TensorHolder(replica_id, "node", ""), device=device))
    troupe.roster.replica_ready(ReplicaHello("here", "one", 1, TensorHolder("here", "node", "")))
    troupe.roster.want("two", 1, 0)
    troupe.roster.replica_parked(Parked("two", "two", 1, TensorHolder("two", "node", ""), device="0"))
    assert troupe.warmed() == ["here"]

    one.most_on = {"node/0": 0}
    assert one.misplaced() == ["here"]
    troupe.roster.want("one", 1, 1)
    assert troupe.warmed() == ["here", "there"]
    troupe.roster.replica_ready(ReplicaHello("there", "one", 1, TensorHolder("there", "node", "")))
    troupe.roster.park("here")
    troupe.roster.replica_parked(Parked("here", "one", 1, TensorHolder("here", "node", ""), device="0"))
    assert troupe.warmed() == ["here", "there", "two"]
    troupe.roster.replica_ready(ReplicaHello("two", "two", 1, TensorHolder("two", "node", "")))
    assert [(status.counts().warm, status.misplaced()) for status in (one, two)] == [(1, []), (1, [])]
    troupe.roster.want("one", 2, 0)
    assert troupe.warmed() == ["here", "there", "two"], "the device belongs to the other"


def _program(name: str, **options: Any) -> dyorc.Program:
    @dyorc.program(name=name, group="lm", **options)
    def same(x: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
        return x

    return same


class SharedTroupe:
    """Two processes, each with a parked replica of two programs, on one device if they have any."""

    def __init__(self, device: str = "", **options: Any) -> None:
        self.warmed: list[str] = []
        status = StatusBoard([_program("prefill", **options), _program("decode", **options)])
        self.roster = ReplicaRegistry(status, self._tell, lambda program, number: None)
        for program in status.programs:
            self.roster.want(program, 0, 2)
        for program, process in (("prefill", "A"), ("prefill", "B"), ("decode", "B"), ("decode", "A")):
            name = f"{program}#{process}"
            holder = TensorHolder(name, "here", "")
            self.roster.replica_parked(Parked(name, program, 1, holder, device=device, process=process))

    def _tell(self, name: str, message: Message) -> None:
        if isinstance(message, Warm):
            self.warmed.append(name)

    def want_one_of_each(self) -> list[str]:
        for program in ("prefill", "decode"):
            self.roster.want(program, 1, 1)
        return self.warmed


async def test_programs_of_a_group_are_loaded_in_one_process_though_another_was_parked_for_longer() -> None:
    assert SharedTroupe().want_one_of_each() == ["prefill#A", "decode#A"]


async def test_programs_of_a_group_take_the_device_of_their_process_once() -> None:
    troupe = SharedTroupe("0", ray_actor_options={"num_gpus": 1})
    assert troupe.want_one_of_each() == ["prefill#A", "decode#A"]
    for program in ("prefill", "decode"):
        troupe.roster.want(program, 2, 0)
    assert troupe.warmed == ["prefill#A", "decode#A"], "the other process would need another device"
