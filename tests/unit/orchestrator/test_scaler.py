"""The scaler asks the policy, applies its decisions, and remembers what it decided and learned."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from dyorc.config import ScalingConfig
from dyorc.errors import InvalidInputError, StoreError, UnknownModelError
from dyorc.orchestrator.scaler import Scaler
from dyorc.scaling.model import Bounds, Cost, DesiredReplicas, LeadTimes, ProgramLoad, ReplicaCounts, Speed
from tests.deadlines import wait_until_async

COLD = ProgramLoad(
    program="large",
    bounds=Bounds(min_warm=0, max_replicas=4),
    cost=Cost(),
    counts=ReplicaCounts(),
    lead=LeadTimes(0.2, 2.0),
    speed=Speed(0.01, 0.001, 8),
)


@dataclass
class Works:
    """What is scaled: programs have their desired replicas at once."""

    programs: dict[str, ProgramLoad] = field(default_factory=lambda: {"large": COLD})
    all_desired: list[DesiredReplicas] = field(default_factory=list[DesiredReplicas])
    orders: list[bool] = field(default_factory=list[bool])

    def loads(self) -> Sequence[ProgramLoad]:
        """Returns all programs."""
        return list(self.programs.values())

    def want(self, desired: DesiredReplicas, *, is_order: bool) -> None:
        """Makes it true."""
        self.all_desired.append(desired)
        self.orders.append(is_order)
        counts = ReplicaCounts(warm=desired.num_warm, parked=desired.num_parked)
        self.programs[desired.program] = replace(self.programs[desired.program], counts=counts)


class Memory:
    """Notes in memory, which may be out of order."""

    def __init__(self, *, is_down: bool = False) -> None:
        self.values: dict[str, bytes] = {}
        self._is_down = is_down

    async def note(self, name: str, value: bytes) -> None:
        """Keeps a value."""
        if self._is_down:
            raise StoreError("the store is down")
        self.values[name] = value

    async def noted(self, name: str) -> bytes | None:
        """Returns a value."""
        if self._is_down:
            raise StoreError("the store is down")
        return self.values.get(name)


pytestmark = pytest.mark.anyio

FAST = ScalingConfig(interval_s=0.01)
RARELY = ScalingConfig(interval_s=3600)


def begun(config: ScalingConfig) -> Scaler:
    """Returns a scaler that knows of a program to scale."""
    scaler = Scaler(config)
    scaler.begin()
    return scaler


async def test_a_program_that_calls_wait_for_gets_a_replica_and_the_reason_is_remembered() -> None:
    works = Works()
    scaler = begun(FAST)
    async with scaler.running(works):
        assert works.programs["large"].counts.warm == 0
        works.programs["large"] = replace(works.programs["large"], num_queued=5)
        await wait_until_async(lambda: works.programs["large"].counts.warm > 0, "a replica")
        report = scaler.report()
    one = report["programs"]["large"]
    assert one["num_warm"] == one["num_warm_wanted"] > 0
    last = report["decisions"][-1]
    assert (last["program"], last["num_warm"], last["reason"]) == ("large", one["num_warm"], one["reason"])
    assert last["reason"]


async def test_what_is_ordered_by_hand_is_done_at_once_and_until_it_is_taken_back() -> None:
    works = Works()
    scaler = begun(RARELY)
    async with scaler.running(works):
        await asyncio.sleep(0)
        scaler.scale("large", 2, 1)
        assert works.programs["large"].counts == ReplicaCounts(warm=2, parked=1)
        assert scaler.report()["programs"]["large"]["is_by_hand"]
        scaler.scale("large", None, None)
        assert not scaler.report()["programs"]["large"]["is_by_hand"]


async def test_a_fixed_number_is_left_alone_until_another_is_set_by_hand() -> None:
    fixed = replace(COLD, bounds=Bounds(min_warm=2, max_replicas=2), counts=ReplicaCounts(warm=3))
    works = Works({"large": fixed})
    scaler = Scaler(RARELY)
    async with scaler.running(works):
        scaler.decide()
        assert not works.all_desired
        scaler.scale("large", 5, 1)
        assert works.programs["large"].counts == ReplicaCounts(warm=5, parked=1)
        scaler.scale("large", None, None)
        assert works.programs["large"].counts == ReplicaCounts(warm=2)


async def test_more_than_a_servers_own_process_can_run_is_refused_and_says_what_runs_more() -> None:
    alone = replace(COLD, bounds=Bounds(min_warm=1, max_replicas=1), counts=ReplicaCounts(warm=1), most_possible=1)
    works = Works({"large": alone})
    scaler = Scaler(RARELY)
    async with scaler.running(works):
        for num_warm, num_parked in ((3, None), (1, 1), (None, 2)):
            with pytest.raises(InvalidInputError, match="expected at most 1: it runs in the server's own process; `--cells N`"):
                scaler.scale("large", num_warm, num_parked)
        scaler.scale("large", 0, None)
        assert works.programs["large"].counts == ReplicaCounts()


@pytest.mark.parametrize(
    ("num_warm", "num_parked", "said"),
    [(5, None, "5 warm replicas, expected 0 to 4"), (3, 2, "3 warm and 2 parked replicas are more than the 4")],
)
async def test_more_than_the_bounds_is_refused(num_warm: int | None, num_parked: int | None, said: str) -> None:
    works = Works()
    scaler = begun(RARELY)
    async with scaler.running(works):
        with pytest.raises(InvalidInputError, match=said):
            scaler.scale("large", num_warm, num_parked)
        with pytest.raises(UnknownModelError, match="no program 'larger'"):
            scaler.scale("larger", 1, None)


@pytest.mark.parametrize(
    ("declared", "allowed", "limit"), [(2, 8, 8), (20, 8, 20), (1, ScalingConfig().max_replicas_by_hand, 64)]
)
async def test_a_number_that_would_fill_the_machine_is_refused_and_says_what_allows_more(
    declared: int, allowed: int, limit: int
) -> None:
    fixed = replace(COLD, bounds=Bounds(min_warm=declared, max_replicas=declared))
    works = Works({"large": fixed, "other": replace(fixed, program="other", bounds=Bounds())})
    scaler = Scaler(RARELY.model_copy(update={"max_replicas_by_hand": allowed}))
    async with scaler.running(works):
        for num_warm, num_parked in ((limit + 1, None), (limit, 1), (None, limit + 1), (10**6, None)):
            with pytest.raises(InvalidInputError) as caught:
                scaler.scale("large", num_warm, num_parked)
            number = (num_warm or 0) + (num_parked or 0)
            text = str(caught.value)
            assert f"program 'large': {num_warm or 0} warm and {num_parked or 0} parked replicas are {number}, " in text
            assert f"expected at most {limit}; " in text
            assert "DYORC_SCALING__MAX_REPLICAS_BY_HAND" in text
            assert f"autoscaling_config={{'max_replicas': {number}}}" in text
        assert not works.all_desired
        scaler.scale("large", limit, None)
        assert works.programs["large"].counts.warm == limit


async def test_programs_of_a_group_may_have_as_many_by_hand_as_any_of_them_declares() -> None:
    many = replace(COLD, bounds=Bounds(min_warm=9, max_replicas=9), group="lm")
    works = Works({"large": many, "small": replace(many, program="small", bounds=Bounds())})
    scaler = Scaler(RARELY.model_copy(update={"max_replicas_by_hand": 2}))
    async with scaler.running(works):
        scaler.scale("small", 9, None)
        with pytest.raises(InvalidInputError, match="expected at most 9"):
            scaler.scale("small", 10, None)


async def test_a_request_that_leads_to_a_cold_program_is_urgent_and_decided_at_once() -> None:
    works = Works()
    scaler = begun(RARELY)
    async with scaler.running(works):
        await asyncio.sleep(0)
        for number in range(20):
            scaler.traffic.arrived(number, "flow", number)
            scaler.traffic.called(number, "large", number)
            scaler.traffic.ended(number, number + 1)
        before = len(works.all_desired)
        works.programs["large"] = replace(COLD, num_queued=1)
        scaler.traffic.arrived(99, "flow", 10**9)
        assert scaler.traffic.is_urgent
        scaler.decide()
        assert not scaler.traffic.is_urgent
        assert len(works.all_desired) > before
        assert works.programs["large"].counts.warm > 0


async def test_what_was_learned_outlives_the_server() -> None:
    memory = Memory()
    first = begun(RARELY)
    async with first.running(Works()), first.persist_traffic(memory, "traffic"):
        for number in range(50):
            first.traffic.arrived(number, "flow", number)
            first.traffic.ended(number, number + 1)
    assert memory.values.keys() == {"traffic"}
    second = begun(RARELY)
    async with second.running(Works()), second.persist_traffic(memory, "traffic"):
        assert second.traffic.rates_per_s(1.0).keys() == {"flow"}


async def test_it_begins_when_there_is_something_to_scale_and_recalls_what_was_learned_then() -> None:
    memory = Memory()
    first = begun(RARELY)
    async with first.running(Works()), first.persist_traffic(memory, "traffic"):
        first.traffic.arrived(1, "flow", 1)
    kept = dict(memory.values)
    works = Works({})
    idle = Scaler(RARELY)
    async with idle.running(works), idle.persist_traffic(memory, "traffic"):
        pass
    assert memory.values == kept, "nothing was learned"
    scaler = Scaler(FAST)
    async with scaler.running(works), scaler.persist_traffic(memory, "traffic"):
        assert scaler.forecast_per_s("large") is None
        works.programs["large"] = replace(COLD, num_queued=5)
        scaler.begin()
        assert works.programs["large"].counts.warm > 0, "at once"
        await wait_until_async(lambda: "flow" in scaler.traffic.rates_per_s(1.0), "it is recalled")
        works.programs["large"] = replace(works.programs["large"], num_queued=5000)
        await wait_until_async(lambda: works.programs["large"].counts.warm > 1, "and regularly")
    assert memory.values != kept


@pytest.mark.parametrize("value", [b"", b"{", b'{"at_s": 1, "state": {"flow": {}}}', b'{"at_s": "x", "state": 1}'])
async def test_notes_that_cannot_be_read_are_left_out(value: bytes) -> None:
    memory = Memory()
    memory.values["traffic"] = value
    scaler = begun(RARELY)
    async with scaler.running(Works()), scaler.persist_traffic(memory, "traffic"):
        assert scaler.traffic.rates_per_s(1.0) == {}


async def test_a_store_that_is_down_is_no_obstacle() -> None:
    scaler = begun(RARELY)
    async with scaler.running(Works()), scaler.persist_traffic(Memory(is_down=True), "traffic"):
        scaler.scale("large", 1, None)


async def test_a_fault_of_the_policy_leaves_the_replicas_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    works = Works()
    scaler = begun(FAST)
    async with scaler.running(works):
        await wait_until_async(lambda: bool(works.all_desired), "a decision")
        monkeypatch.setattr(works, "loads", lambda: [replace(COLD, bounds=None)])
        scaler.decide()
        monkeypatch.undo()
        scaler.scale("large", 1, None)
    assert works.programs["large"].counts.warm == 1


async def test_a_number_by_hand_is_an_order_even_if_it_is_what_it_was() -> None:
    works, scaler = Works(), Scaler(ScalingConfig())
    async with scaler.running(works):
        scaler.begin()
        assert (works.all_desired[-1].num_warm, works.orders) == (0, [False])
        scaler.scale("large", 0, None)
        assert (works.all_desired[-1].num_warm, works.orders[-1]) == (0, True)
        scaler.scale("large", None, None)
        assert (works.all_desired[-1].num_warm, works.orders[-1]) == (0, False)
