"""The engine under any order of events: nothing is lost, nothing is done twice, every answer is right."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.engine.events import ReplicaJoined, ReplicasWanted, RequestArrived
from dyorc.errors import (
    CapacityError,
    DeadlineError,
    DyOrcError,
    EffectLostError,
    ProgramError,
    ProgramLoadError,
    ReplicaLostError,
    RequestCancelledError,
    SuspectInputError,
)
from tests.effort import examples
from tests.property.tallies import Tally, comes_across
from tests.property.workloads import EFFECTFUL, PROGRAMS, REFERENCES, Numbers, Refused, send
from tests.unit.engine.dispatched import Dispatched
from tests.unit.engine.driver import World

_PARKING = Tally()
_RETURNS = Tally()
_GATEWAY = "gateway"

numbers = st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0, 12.0, 13.0, 29.0]), min_size=2, max_size=2)
workflows = st.sampled_from(list(REFERENCES))
programs = st.sampled_from(PROGRAMS)
deadlines = st.sampled_from([None, 1.0, 20.0, 1000.0])
tenants = st.sampled_from(["", "", "a", "b"])


class EngineStates(RuleBasedStateMachine):
    """Whatever can happen to an engine happens; `World.tell` checks all invariants after each event."""

    speculation = SpeculationConfig()
    is_placing = False

    def __init__(self) -> None:
        super().__init__()
        config = EngineConfig(max_requests=12, max_attempts=3, max_load_failures=2, speculation=self.speculation)
        self.world = World(PROGRAMS, config, is_storing=True, is_placing=self.is_placing, is_fetching=False, is_taking=False)
        self.replicas: set[str] = set()
        self.gone: dict[str, dyorc.Program] = {}
        """Replicas that may come back under their old name."""
        self.asked: dict[int, tuple[dyorc.Workflow, Numbers]] = {}
        self.by_gateway: dict[int, RequestArrived] = {}
        """Requests whose inputs a gateway holds."""
        self.excuses: set[type[DyOrcError]] = set()
        """Errors that the world has given a reason for so far."""
        self.world.gateway_joins(_GATEWAY)
        for program in PROGRAMS:
            self.join(program, "a")

    @rule(program=programs, node=st.sampled_from(["a", "b"]))
    def join(self, program: dyorc.Program, node: str) -> None:
        self.replicas.add(self.world.join(program, node=node, num_cores=2 if node == "b" else 0))

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        replica_id = data.draw(st.sampled_from(sorted(self.gone)))
        self.replicas.add(self.world.join(self.gone.pop(replica_id), replica_id))

    @rule(
        asked=st.lists(st.tuples(workflows, numbers, deadlines, st.integers(0, 2), tenants), min_size=1, max_size=4),
        holder=st.sampled_from(["", _GATEWAY]),
    )
    def arrive(self, asked: list[tuple[dyorc.Workflow, Numbers, float | None, int, str]], holder: str) -> None:
        if len(self.world.engine.tasks.requests) + len(asked) > self.world.config.max_requests:
            self.excuses.add(CapacityError)
        events = []
        for workflow, x, deadline_s, priority, tenant in asked:
            event = self.world.arrival(workflow, x, deadline_s=deadline_s, priority=priority, tenant=tenant, holder=holder)
            if deadline_s is not None:
                self.excuses.add(DeadlineError)  # perhaps it cannot be met
            self.asked[event.request_id] = (workflow, x)
            if holder:
                self.by_gateway[event.request_id] = event
            events.append(event)
        self.world.tell(*events)

    @precondition(lambda self: self.by_gateway.keys() & self.asked.keys())
    @rule()
    def gateway_returns(self) -> None:
        self.excuses |= {ReplicaLostError, SuspectInputError, EffectLostError, CapacityError}
        pending = [event for request_id, event in self.by_gateway.items() if request_id in self.asked]
        self.by_gateway = {event.request_id: event for event in self.world.gateway_returns(_GATEWAY, pending)}
        for before, after in zip(pending, self.by_gateway, strict=True):
            self.asked[after] = self.asked.pop(before.request_id)
        _RETURNS.add({"returns_under_batches": bool(self.world.in_flight)})

    @precondition(lambda self: self.world.in_flight)
    @rule(data=st.data(), execute_s=st.sampled_from([0.001, 0.1, 1.0]))
    def finish(self, data: st.DataObject, execute_s: float) -> None:
        self.world.finish(self.pick_batch(data), execute_s)

    @precondition(lambda self: len(self.world.in_flight) > 1)
    @rule(data=st.data())
    def finish_together(self, data: st.DataObject) -> None:
        batches = data.draw(st.permutations(list(self.world.in_flight.values())))
        self.world.tell(*(self.world.outcome(batch) for batch in batches))

    @precondition(lambda self: self.world.in_flight)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        batch = self.pick_batch(data)
        if batch.size == 1 or batch.action.program is send:
            self.excuses.add(ProgramError)
        self.world.fail(batch)

    @precondition(lambda self: self.replicas)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        replica_id = data.draw(st.sampled_from(sorted(self.replicas)))
        self.lose(replica_id)
        self.world.leave(replica_id)

    @precondition(lambda self: self.world.in_flight)
    @rule(data=st.data())
    def leave_before_the_result(self, data: st.DataObject) -> None:
        batch = self.pick_batch(data)
        late = self.world.outcome(batch)
        self.lose(batch.action.replica_id)
        self.world.leave(batch.action.replica_id)
        self.world.tell(late)

    @rule(program=programs, num_warm=st.integers(0, 3), lead_s=st.sampled_from([0.0, 0.5, 30.0]))
    def want(self, program: dyorc.Program, num_warm: int, lead_s: float) -> None:
        if lead_s:
            self.excuses.add(DeadlineError)  # a cold program may be ready too late
        self.world.want(program, num_warm, lead_s)

    @rule(program=programs, num_warm=st.integers(0, 3))
    def want_while_replicas_announce_themselves(self, program: dyorc.Program, num_warm: int) -> None:
        said = [ReplicaJoined(replica.replica_id, replica.pool.program.name, replica.node)
                for replica in self.world.engine.scheduler.replicas.values()]  # fmt: skip
        self.world.tell(ReplicasWanted(program.name, num_warm, 0.0, ()), *said)

    @precondition(lambda self: self.world.in_flight)
    @rule(data=st.data())
    def want_none_of_a_busy_program(self, data: st.DataObject) -> None:
        self.world.want(self.pick_batch(data).action.program, 0)
        _PARKING.add({"draining": self.num_draining()})

    @precondition(lambda self: self.num_draining())
    @rule()
    def want_draining_ones_again(self) -> None:
        _PARKING.add({"resumed": self.num_draining()})
        for program in PROGRAMS:
            self.world.want(program, 3)
        assert not self.num_draining()

    @precondition(lambda self: self.world.parked)
    @rule(data=st.data())
    def warm(self, data: st.DataObject) -> None:
        self.world.warm(data.draw(st.sampled_from(sorted(self.world.parked))))

    @rule(program=programs)
    def fail_load(self, program: dyorc.Program) -> None:
        self.excuses.add(ProgramLoadError)
        self.world.fail_load(program)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.excuses.add(RequestCancelledError)
        self.world.cancel(data.draw(st.sampled_from(sorted(self.asked))))

    @rule(seconds=st.sampled_from([0.05, 0.5, 2.0, 6.0]))
    def advance(self, seconds: float) -> None:
        """Moves the clock on; 6 s is longer than a batch may run, so replicas that hold one count as hung."""
        self.excuses.add(DeadlineError)
        self.world.advance(seconds)
        while self.world.replaced:
            self.lose(self.world.replaced.pop())

    @precondition(lambda self: self.world.fetches)
    @rule()
    def fetch(self) -> None:
        self.world.fetch()

    @precondition(lambda self: self.world.untaken)
    @rule()
    def take(self) -> None:
        self.world.take()

    @precondition(lambda self: any(holder for holder, _ in self.world.stored))
    @rule(data=st.data())
    def vanish(self, data: st.DataObject) -> None:
        self.excuses |= {ReplicaLostError, SuspectInputError, EffectLostError}
        self.world.vanish(data.draw(st.sampled_from(sorted(block for block in self.world.stored if block[0]))))

    @precondition(lambda self: self.world.in_flight)
    @rule(data=st.data(), is_known=st.booleans())
    def lose_inputs(self, data: st.DataObject, is_known: bool) -> None:
        self.excuses |= {ReplicaLostError, SuspectInputError, EffectLostError}
        self.world.lose_inputs(self.pick_batch(data), None if is_known else [])

    def lose(self, replica_id: str) -> None:
        self.excuses |= {ReplicaLostError, SuspectInputError, EffectLostError}
        self.replicas.remove(replica_id)
        self.gone[replica_id] = next(program for program in PROGRAMS if replica_id.startswith(f"{program.name}#"))

    def pick_batch(self, data: st.DataObject) -> Dispatched:
        return self.world.in_flight[data.draw(st.sampled_from(sorted(self.world.in_flight)))]

    @invariant()
    def answers_are_right(self) -> None:
        for request_id in list(self.asked):
            if request_id in self.world.answers:
                self.check_answer(request_id, *self.asked.pop(request_id))

    def check_answer(self, request_id: int, workflow: dyorc.Workflow, x: Numbers) -> None:
        try:
            expected: object = REFERENCES[workflow](x)
        except Refused:
            expected = Refused
        answer = self.world.answers[request_id]
        if isinstance(answer, ProgramError) and answer.error_type == "ValueError":
            assert expected is Refused, f"{workflow.name} of {x} failed: {answer}"
        elif isinstance(answer, DyOrcError):
            assert type(answer) in self.excuses, f"{workflow.name} of {x} failed without a reason: {answer!r}"
        else:
            assert np.array_equal(answer[0], expected), f"{workflow.name} of {x} gave {answer[0]}, expected {expected}"

    def held_s(self) -> float:
        """Returns how long calls may still be held for others that will not come, in seconds."""
        pools = (pool for pool in self.world.engine.scheduler.pools.values() if len(pool.queue))
        return max(0.0, max((pool.held_until_ns - self.world.now_ns for pool in pools), default=0) / 1e9)

    def num_draining(self) -> int:
        return sum(len(pool.draining) for pool in self.world.engine.scheduler.pools.values())

    def parked_holders(self) -> set[str]:
        """Returns the parked replicas in whose memory tensors lie."""
        return {holder for holder, _ in self.world.stored} & self.world.parked.keys()

    def teardown(self) -> None:
        """Heals the world: then every request is answered, and nothing is left of any."""
        _PARKING.add({"parked": len(self.world.parked), "parked_with_tensors": len(self.parked_holders())})
        for program in PROGRAMS:
            self.world.want(program, 1)
            self.join(program, "a")
        while self.world.in_flight or self.world.fetches or self.world.untaken or self.held_s():
            if self.world.untaken:
                self.world.take()
            elif self.world.fetches:
                self.world.fetch()
            elif self.world.in_flight:
                self.world.finish()
            else:
                self.world.advance(self.held_s())
        self.answers_are_right()
        assert not self.asked
        self.world.check_nothing_is_left()
        num_sent = sum(self.world.sizes(send)) - sum(batch.size for batch in self.world.not_run if batch.program == send.name)
        assert num_sent <= sum(1 for workflow in self.world.workflows.values() if workflow in EFFECTFUL), "an effect was repeated"


class LosingStates(EngineStates):
    """The same, except that results stay with the replicas that made them."""

    is_placing = True


_BETS = Tally()


class GuessingStates(EngineStates):
    """The same, except that every possible guess is made: the engine knows from the start how long programs take."""

    is_placing = True
    speculation = SpeculationConfig(margin=0, max_wasted_ratio=0.95, min_probability=0.0, max_depth=8, burst_s=1e6)

    def __init__(self) -> None:
        super().__init__()
        for pool in self.world.engine.scheduler.pools.values():
            for size in (1, 2):
                pool.latency.observe(size, 0.1 + 0.02 * size)
            pool.sojourn_ns.add(0.12e9)
            pool.demand.add(0, 0)  # its rate is known: 0

    def teardown(self) -> None:
        super().teardown()
        speculator = self.world.engine.speculator
        assert speculator.num_speculations == speculator.num_commits + speculator.num_squashes
        _BETS.add({"speculations": speculator.num_speculations})


_STATES = settings(max_examples=examples(75, 0.5), stateful_step_count=40)


@comes_across(_RETURNS, "returns_under_batches", least=1)
@comes_across(_PARKING, "draining", "resumed", "parked", least=1)
def test_nothing_is_lost_and_nothing_is_done_twice() -> None:
    run_state_machine_as_test(EngineStates, settings=_STATES)


@comes_across(_PARKING, "draining", "resumed", "parked", "parked_with_tensors", least=1)
def test_nothing_is_lost_and_nothing_is_done_twice_when_results_stay_with_replicas() -> None:
    run_state_machine_as_test(LosingStates, settings=_STATES)


@comes_across(_BETS, "speculations", least=20)
def test_nothing_is_lost_and_nothing_is_done_twice_for_guesses() -> None:
    run_state_machine_as_test(GuessingStates, settings=_STATES)


def answers_in_order(requests: list[tuple[dyorc.Workflow, Numbers]], pick: Callable[[int], int]) -> list[object]:
    """Returns the answers of requests that arrive together, when of n batches in flight the one that `pick(n)` names ends
    next.
    """
    world = World(PROGRAMS, is_storing=True)
    for program in PROGRAMS:
        world.join(program)
        world.join(program)
    world.tell(*(world.arrival(workflow, x) for workflow, x in requests))
    while world.in_flight:
        world.finish(list(world.in_flight.values())[pick(len(world.in_flight))])
    world.check_nothing_is_left()
    answers = (world.answers[at + 1] for at in range(len(requests)))
    return [str(answer) if isinstance(answer, DyOrcError) else answer[0].tolist() for answer in answers]


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(workflows, numbers), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_answers_do_not_depend_on_the_order_in_which_batches_end(
    requests: list[tuple[dyorc.Workflow, Numbers]], rng: Any
) -> None:
    oldest_first = answers_in_order(requests, lambda num_batches: 0)
    assert answers_in_order(requests, lambda num_batches: num_batches - 1) == oldest_first
    assert answers_in_order(requests, rng.randrange) == oldest_first


@pytest.mark.filterwarnings("ignore:an effect of 'send' failed:RuntimeWarning")
@pytest.mark.parametrize("workflow", list(REFERENCES), ids=lambda workflow: workflow.name)
def test_dyorc_run_returns_what_the_reference_returns(workflow: dyorc.Workflow) -> None:
    for x in ([0.0, 1.0], [5.0, 12.0], [29.0, 29.0], [1.0, 13.0], [13.0, 1.0], [2.0, 13.0]):
        try:
            expected = REFERENCES[workflow](x)
        except Refused:
            with pytest.raises(ProgramError, match="poison"):
                dyorc.run(workflow, x)
        else:
            assert np.array_equal(dyorc.run(workflow, x), expected)
