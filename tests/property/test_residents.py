"""Residents change no answer: random workflows whose state lies in processes that die, are full, and drop it."""

from collections.abc import Sequence
from random import Random
from typing import Any, TypeAlias

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jaxtyping import Float

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.core.tensor import DType
from dyorc.engine.engine_context import Host
from dyorc.engine.scheduling.resident_forming import consumed_by
from dyorc.errors import RequestCancelledError
from tests.effort import examples
from tests.property.tallies import Tally, comes_across
from tests.property.test_speculation import AGGRESSIVE, OFF, predictor_of
from tests.unit.engine.dispatched import Dispatched
from tests.unit.engine.driver import World

Number = Float[np.ndarray, ""]
Numbers = Float[np.ndarray, " batch"]
State: TypeAlias = tuple[float, ...]
Changing: TypeAlias = list[float]
Plan: TypeAlias = tuple[Any, ...]

_MODULUS = 97
_ITEM_BYTES = 8
_MAX_LOSSES = 20
"""After this many losses nothing more is lost, so that every example ends."""


def longer(state: Sequence[float], x: float) -> State:
    return (*state, float((x + len(state)) % _MODULUS))


def value_of(state: Sequence[float]) -> float:
    return float(sum(state) % _MODULUS)


class Sized:
    """Says how large its residents are."""

    def resident_bytes(self, state: Sequence[float]) -> int:
        return _ITEM_BYTES * len(state)


def programs_with(limit: int | None, *, can_rebuild: bool) -> dict[str, dyorc.Program]:
    """Returns the programs of a group whose processes hold at most `limit` bytes."""

    @dyorc.program(max_batch_size=3, group="states", max_resident_bytes=limit)
    class Begin(Sized):
        def __call__(self, x: Numbers) -> dyorc.Resident[Changing]:
            return [list(longer((), each)) for each in x]

    @dyorc.program(max_batch_size=3, group="states")
    class Extend(Sized):
        def __call__(self, x: Numbers, state: dyorc.Resident[Changing]) -> tuple[Numbers, dyorc.Resident[Changing]]:
            states = [list(longer(old, each)) for old, each in zip(state, x, strict=True)]
            return np.array([value_of(each) for each in states], np.float32), states

    @dyorc.program(max_batch_size=3, group="states")
    class Overwrite(Sized):
        """Leaves nothing of the state that it gets but its size, where `Extend` leaves it as it was."""

        def __call__(
            self, x: Numbers, state: dyorc.Resident[Changing, dyorc.Consumed]
        ) -> tuple[Numbers, dyorc.Resident[Changing]]:
            assert len({id(each) for each in state}) == len(state), "two calls overwrite the same state"
            states = [list(longer(each, number)) for each, number in zip(state, x, strict=True)]
            for each in state:
                each[:] = [-1.0] * len(each)
            return np.array([value_of(each) for each in states], np.float32), states

    @dyorc.program(max_batch_size=3, group="states")
    class Join(Sized):
        def __call__(self, x: Numbers, a: dyorc.Resident[Changing], b: dyorc.Resident[Changing]) -> Numbers:
            return np.array([(value_of(i) + 3 * value_of(j) + k) % _MODULUS for i, j, k in zip(a, b, x, strict=True)], np.float32)

    @dyorc.program(max_batch_size=3)
    def look(x: Numbers) -> Numbers:
        return x

    if can_rebuild:

        def rebuild(self: Any, calls: list[dyorc.ChainCall]) -> Changing:
            state: State = ()
            for call in calls:
                state = longer(state, float(call.inputs[0]))
            return list(state)

        Extend.__wrapped__.rebuild = Overwrite.__wrapped__.rebuild = rebuild
    return {"begin": Begin(), "extend": Extend(), "overwrite": Overwrite(), "join": Join(), "look": look}


def workflow_of(plan: Plan, programs: dict[str, dyorc.Program]) -> dyorc.Workflow:
    """Returns a workflow that carries out a plan."""
    begin, extend, join = programs["begin"], programs["extend"], programs["join"]
    nested = {step: workflow_of(step[1], programs) for step in plan if step[0] == "nested"}

    async def carry_out(plan: Plan, x: Any, states: list[Any]) -> Any:
        for step in plan:
            match step:
                case ("begin",):
                    states.append(begin(x))
                case ("extend", at):
                    x, states[at % len(states)] = extend(x, states[at % len(states)])
                case ("overwrite", at):
                    x, states[at % len(states)] = programs["overwrite"](x, states[at % len(states)])
                case ("fork" | "fork overwriting" as kind, at):
                    x, state = programs["extend" if kind == "fork" else "overwrite"](x, states[at % len(states)])
                    states.append(state)
                case ("join", a, b):
                    x = join(x, states[a % len(states)], states[b % len(states)])
                case ("await",):
                    await x
                case ("drop", at):
                    if len(states) > 1:
                        del states[at % len(states)]
                case ("if", yes, no):
                    x = await carry_out(yes if await dyorc.when(x, is_even) else no, x, states)
                case ("if looked at", yes, no):
                    x = await carry_out(yes if await dyorc.when(programs["look"](x), is_even) else no, x, states)
                case ("nested", _):
                    x = nested[step](x)
                case _:
                    raise AssertionError(step)
        return x

    @dyorc.workflow(name="planned", programs=list(programs.values()))
    async def planned(x: Number) -> Number:
        return await carry_out(plan, x, [begin(x)])

    return planned


def is_even(x: Any) -> bool:
    return bool(x % 2 == 0)


def meaning_of(plan: Plan, x: float, states: list[State] | None = None) -> float:
    """Returns what a plan computes, by plain Python."""
    states = [longer((), x)] if states is None else states
    for step in plan:
        match step:
            case ("begin",):
                states.append(longer((), x))
            case ("extend" | "overwrite", at):
                states[at % len(states)] = longer(states[at % len(states)], x)
                x = value_of(states[at % len(states)])
            case ("fork" | "fork overwriting", at):
                states.append(longer(states[at % len(states)], x))
                x = value_of(states[-1])
            case ("join", a, b):
                x = (value_of(states[a % len(states)]) + 3 * value_of(states[b % len(states)]) + x) % _MODULUS
            case ("drop", at) if len(states) > 1:
                del states[at % len(states)]
            case ("if" | "if looked at", yes, no):
                x = meaning_of(yes if is_even(x) else no, x, states)
            case ("nested", inner):
                x = meaning_of(inner, x)
            case _:
                pass
    return x


_at = st.integers(0, 5)
_step = st.one_of(
    st.just(("begin",)),
    st.tuples(st.just("extend"), _at),
    st.tuples(st.just("extend"), _at),
    st.tuples(st.sampled_from(["overwrite", "fork overwriting"]), _at),
    st.tuples(st.just("fork"), _at),
    st.tuples(st.just("join"), _at, _at),
    st.just(("await",)),
    st.tuples(st.just("drop"), _at),
)
_short = st.lists(_step, max_size=4).map(tuple)
_if = st.sampled_from(["if", "if looked at", "if looked at"])
plans = st.lists(st.one_of(_step, _step, st.tuples(_if, _short, _short), st.tuples(st.just("nested"), _short)), max_size=8).map(
    tuple
)


Turn: TypeAlias = tuple[str, int, int]


def meeting(turns: tuple[Turn, ...], num_chains: int, programs: dict[str, dyorc.Program]) -> dyorc.Workflow:
    """Returns a workflow of chains that wait for nothing but themselves, and meet."""
    begin, extend, join = programs["begin"], programs["extend"], programs["join"]

    @dyorc.workflow(name="meeting", programs=list(programs.values()))
    async def meet(x: Number) -> Number:
        states, total = [begin(x) for _ in range(num_chains)], x
        for kind, a, b in turns:
            if kind == "join":
                total = join(total, states[a % len(states)], states[b % len(states)])
            elif kind == "fork":
                states.append(extend(x, states[a % len(states)])[1])
            else:
                states[a % len(states)] = extend(x, states[a % len(states)])[1]
        return join(total, states[0], states[-1])

    return meet


def meaning_of_meeting(turns: tuple[Turn, ...], num_chains: int, x: float) -> float:
    """Returns what chains that meet compute, by plain Python."""
    states, total = [longer((), x) for _ in range(num_chains)], x
    for kind, a, b in (*turns, ("join", 0, -1)):
        at = a % len(states)
        if kind == "join":
            total = (value_of(states[at]) + 3 * value_of(states[b % len(states)]) + total) % _MODULUS
        elif kind == "fork":
            states.append(longer(states[at], x))
        else:
            states[at] = longer(states[at], x)
    return total


class Processes:
    """A world of processes that come and go, and run what the engine sends them in any order."""

    def __init__(
        self, programs: dict[str, dyorc.Program], num_processes: int, speculation: SpeculationConfig, seed: int, trouble: float
    ) -> None:
        config = EngineConfig(speculation=speculation, max_attempts=10**6, max_deaths=10**6, request_timeout_s=10**6)
        self.world = World(programs.values(), config, predictor=predictor_of("random", seed), host=Host())
        self.programs = programs
        self.random = Random(seed)
        self.trouble = trouble
        self.num_losses = self.num_joined = 0
        self.seen: dict[str, int] = dict.fromkeys(
            ("losses", "evictions", "rebuilds", "guesses", "two processes", "limits", "overwritten", "cancelled"), 0
        )
        self.cancels: set[int] = set()
        """Requests that are to be cancelled while they run."""
        self.cancelled: set[int] = set()
        self.known_programs: set[str] = set()
        self.first_batches: set[int] = set()
        for _ in range(num_processes):
            self.join()
        for name in programs:  # how long they take is known, so that guesses are made from the first decision on
            pool = self.world.engine.scheduler.pools[name]
            pool.latency.observe(1, 0.005)
            pool.sojourn_ns.add(0.006e9)
            pool.demand.add(0, 0)

    def join(self) -> None:
        self.num_joined += 1
        for program in self.programs.values():
            process = f"P{self.num_joined}" if program.options.group else ""
            self.world.join(program, f"{program.name}@{self.num_joined}", process=process)

    def die(self) -> None:
        """Lets a process die, and another take its place."""
        process = self.random.choice(list(self.world.engine.scheduler.processes.by_name.values()))
        self.num_losses += 1
        self.seen["losses"] += bool(process.residents)
        for replica_id in sorted(process.replica_ids):
            self.world.leave(replica_id)
        self.join()

    def submit(self, workflow: dyorc.Workflow, asked: list[float], weights: list[float]) -> list[int]:
        """Lets a request arrive for each input, together, of tenants with these weights in turn. Returns their ids."""
        arrivals = [
            self.world.arrival(workflow, x, tenant=f"tenant {at % len(weights)}", weight=weights[at % len(weights)])
            for at, x in enumerate(asked)
        ]
        self.world.tell(*arrivals)
        return [arrival.request_id for arrival in arrivals]

    def cancel(self) -> None:
        """Cancels a request at some time while it runs."""
        running = sorted(self.cancels & self.world.engine.tasks.requests.keys() - self.world.answers.keys())
        if running and self.random.random() < 0.2:
            request = self.random.choice(running)
            self.cancels.remove(request)
            self.cancelled.add(request)
            self.seen["cancelled"] += 1
            self.world.cancel(request)

    def run(self) -> None:
        world = self.world
        for _ in range(20_000):
            self.check_bytes()
            self.cancel()
            if self.trouble and self.num_losses < _MAX_LOSSES and self.random.random() < self.trouble:
                self.die()
            if not world.in_flight:
                if not world.engine.tasks.requests:
                    break
                world.advance(1.0)
                assert world.in_flight or not world.engine.tasks.requests, "nothing goes on"
                continue
            batch = self.random.choice(list(world.in_flight.values()))
            self.seen["guesses"] += any(call.is_guess for call in world.engine.scheduler.batches[batch.action.batch_id].calls)
            self.seen["rebuilds"] += bool(batch.action.chain)
            self.seen["overwritten"] += batch.program == "overwrite" and not batch.action.chain
            world.advance(0.01)  # without it, nothing is known of the demand, and no guess is made
            event = world.outcome(batch, self.random.choice([0.001, 0.01]))
            self.check_limit(batch)
            world.tell(event)
            processes = world.engine.scheduler.processes
            self.seen["two processes"] += sum(bool(process.residents) for process in processes.by_name.values()) > 1
        else:
            raise AssertionError("it does not end")
        self.seen["evictions"] += self.num_evictions

    def check_bytes(self) -> None:
        """The engine counts what the processes hold."""
        for process in self.world.engine.scheduler.processes.by_name.values():
            held = [rows[0] for block, rows in self.world.stored.items() if block[0] == process.name]
            assert process.num_bytes == sum(_ITEM_BYTES * len(state) for state in held)

    def check_limit(self, batch: Dispatched) -> None:
        """A process holds no more than it should while a batch runs, unless all is of one request, or the batch was sent when
        nothing was known of the program."""
        process = self.world.engine.scheduler.processes.by_name.get(self.world.process_of[batch.action.replica_id])
        if process is None or process.limit is None:
            return
        if batch.program not in self.known_programs:
            self.known_programs.add(batch.program)
            sent = [batch, *self.world.in_flight.values()]
            self.first_batches |= {each.action.batch_id for each in sent if each.program == batch.program}
        calls = self.world.engine.scheduler.batches[batch.action.batch_id].calls
        requests = process.requests() | {call.segment.task.request for call in calls}
        overwritten = {block for call in calls for block in consumed_by(call)}  # what a call returns takes their place
        held = sum(
            _ITEM_BYTES * len(rows[0])
            for block, rows in self.world.stored.items()
            if block[0] == process.name and block not in overwritten
        )
        if batch.action.batch_id not in self.first_batches and len(requests) > 1:
            assert held <= process.limit, f"{held} of {process.limit} bytes, for {len(requests)} requests"
            self.seen["limits"] += held > process.limit // 2

    @property
    def num_evictions(self) -> int:
        return sum(self.world.engine.scheduler.report(name).get("num_evicted", 0) for name in self.programs)


_TALLY = Tally()
_weights = st.one_of(st.just([1.0]), st.lists(st.sampled_from([1e-3, 1.0]), min_size=2, max_size=3))
"""The weights of tenants, whose turns need not be in the order of their requests."""


@comes_across(_TALLY, "guesses", "losses", "evictions", "rebuilds", "two processes", "limits", "overwritten", "cancelled")
@settings(max_examples=examples(400, share=0.5))
@given(
    plan=plans,
    asked=st.lists(st.integers(0, 50).map(float), min_size=1, max_size=6),
    num_processes=st.integers(1, 3),
    limit=st.sampled_from([None, 200, 60, 24, 8]),
    can_rebuild=st.booleans(),
    weights=_weights,
    seed=st.integers(0, 2**32),
    trouble=st.sampled_from([0.0, 0.0, 0.1, 0.3]),
    cancelled=st.sets(st.integers(0, 5), max_size=3),
)
@example(  # a resident is made again at its home, where only an older request has some: there is no room for it
    plan=(("begin",), ("join", 0, 1), ("join", 0, 0)), asked=[0.0] * 4, num_processes=3, limit=8, can_rebuild=False,
    weights=[1e-3, 1e-3], seed=0, trouble=0.0, cancelled=set(),
)  # fmt: skip
def test_every_chain_ends_with_the_value_of_plain_python(
    plan: Plan,
    asked: list[float],
    num_processes: int,
    limit: int | None,
    can_rebuild: bool,
    weights: list[float],
    seed: int,
    trouble: float,
    cancelled: set[int],
) -> None:
    programs = programs_with(limit, can_rebuild=can_rebuild)
    workflow = workflow_of(plan, programs)
    for speculation in (AGGRESSIVE, OFF):
        processes = Processes(programs, num_processes, speculation, seed, trouble)
        requests = processes.submit(workflow, asked, weights)
        processes.cancels = {request for at, request in enumerate(requests) if at in cancelled}
        processes.run()
        for request, x in zip(requests, asked, strict=True):
            if request in processes.cancelled:
                assert isinstance(processes.world.answers[request], RequestCancelledError)
            else:
                assert float(processes.world.result(request)) == meaning_of(plan, x)
        processes.world.check_nothing_is_left()
        assert not any(process.residents for process in processes.world.engine.scheduler.processes.by_name.values())
        assert all(tensor.dtype is not DType.RESIDENT for each in processes.world.fetches.values() for tensor in each)
        _TALLY.add(processes.seen)


_MEETINGS = Tally()
_turns = st.lists(
    st.tuples(st.sampled_from(["extend", "extend", "extend", "fork", "join"]), st.integers(0, 5), st.integers(0, 5)),
    min_size=2, max_size=16,
).map(tuple)  # fmt: skip


@comes_across(_MEETINGS, "evictions", "two processes")
@settings(max_examples=examples(300, share=0.6))
@given(
    turns=_turns,
    num_chains=st.integers(2, 3),
    asked=st.lists(st.integers(0, 50).map(float), min_size=1, max_size=8),
    num_processes=st.integers(2, 3),
    limit=st.sampled_from([None, 500, 250, 120, 60, 8]),
    can_rebuild=st.booleans(),
    weights=_weights,
    seed=st.integers(0, 2**32),
)
def test_chains_that_meet_are_evicted_a_bounded_number_of_times(
    turns: tuple[Turn, ...],
    num_chains: int,
    asked: list[float],
    num_processes: int,
    limit: int | None,
    can_rebuild: bool,
    weights: list[float],
    seed: int,
) -> None:
    """Each moves once to the home of its task; without a home they went back and forth for ever."""
    programs = programs_with(limit, can_rebuild=can_rebuild)
    processes = Processes(programs, num_processes, OFF, seed, trouble=0.0)
    workflow = meeting(turns, num_chains, programs)
    requests = processes.submit(workflow, asked, weights)
    num_residents = num_chains + sum(kind != "join" for kind, _, _ in turns)
    processes.run()
    assert [float(processes.world.result(each)) for each in requests] == [meaning_of_meeting(turns, num_chains, x) for x in asked]
    processes.world.check_nothing_is_left()
    assert processes.num_evictions <= 4 * num_residents * len(asked)
    _MEETINGS.add(processes.seen)
