"""What guesses and large batches may delay certain calls by, at most: T is the time of a full batch."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

import numpy as np
import pytest

from dyorc.authoring.decisions import when
from dyorc.authoring.program import program
from dyorc.authoring.workflow import Workflow, workflow
from dyorc.engine.actions import Action, DispatchBatch
from dyorc.engine.engine import Engine
from dyorc.engine.events import Event, RequestArrived
from dyorc.simulation.plain_evaluation import tensor_of
from dyorc.simulation.policies import policy
from dyorc.simulation.simulate import saturation_rps
from dyorc.simulation.value_draws import draw, request_value
from dyorc.simulation.workload import MAX_QUEUED_CALLS, NS_PER_S, Deployment, Number, Numbers, Workload, drawn_program
from dyorc.simulation.workloads import WORKLOADS
from dyorc.simulation.workloads import workload as workload_named
from dyorc.simulation.world import Machines, World
from tests.unit.simulation.tiny import Diary

LINK_NS = 100_000
NUM_KINDS = 4

check = drawn_program("check")


@program(max_batch_size=16, max_queued_calls=MAX_QUEUED_CALLS)
def stage(x: Numbers, kind: int) -> Numbers:
    """Calls of different kinds never share a batch."""
    return draw("stage", x)


def guarded(kind: int) -> Workflow:
    """Makes a workflow whose call of `stage` is guessed, nearly always rightly."""

    @workflow(name=f"guarded_{kind}")
    async def guard(x: Number) -> Number:
        return stage(x, kind) if await when(check(x), lambda score: score < 0.95) else x

    return guard


def certain(kind: int) -> Workflow:
    """Makes a workflow that calls `stage` at once."""

    @workflow(name=f"certain_{kind}")
    async def plain(x: Number) -> Number:
        return stage(x, kind)

    return plain


class BoundsCheck:
    """Stands between a world and its engine, and checks each batch that is sent.

    Attributes:
        num_guessed: Batches with guesses.
        num_first: Calls that found an empty queue, and so were first until a batch took them.
    """

    def __init__(self, engine: Engine, workload: Workload) -> None:
        self._engine = engine
        self._full_ns = {each.program.name: each.batch_ns(each.program.options.max_batch_size) for each in workload.deployments}
        self._since_ns: dict[str, tuple[Any, int]] = {}
        self.num_guessed = self.num_first = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def handle(self, events: Iterable[Event], now_ns: int) -> list[Action]:
        actions = self._engine.handle(events, now_ns)
        scheduler = cast(Any, self._engine.scheduler)
        for action in actions:
            if isinstance(action, DispatchBatch):
                name, calls = action.program.name, scheduler.batches[action.batch_id].calls
                if any(call.bet is not None for call in calls):
                    self.num_guessed += 1
                    assert not scheduler.pools[name].queue.size, "a guess begins while a certain call waits"
        for name, pool in scheduler.pools.items():
            first, since_ns = self._since_ns.get(name, (None, now_ns))
            if first is not None and first not in set(pool.queue):
                # One full batch runs, one has been sent ahead, and a batch may be held as long as a full one takes.
                assert now_ns - since_ns <= 3 * self._full_ns[name] + 4 * LINK_NS
                del self._since_ns[name]
            if name not in self._since_ns and (waiting := pool.queue.peek()) is not None:
                self._since_ns[name] = waiting, now_ns
                self.num_first += 1
        return actions


def run(workload: Workload, arrivals: Iterator[tuple[int, RequestArrived]]) -> BoundsCheck:
    """Runs requests on the engine as it serves, and checks the bounds at each of its turns."""
    checked = BoundsCheck(policy("speculate")(workload.programs, 0), workload)
    world = World(cast(Engine, checked), workload.deployments, Machines(workload.num_replicas(None), LINK_NS), Diary())
    world.run(arrivals)
    return checked


def arrivals_of(workflows: list[Workflow], rate_rps: float, num_requests: int) -> Iterator[tuple[int, RequestArrived]]:
    """Yields requests of these workflows in turn, at random times."""
    times_s = np.cumsum(np.random.default_rng(7).exponential(1 / rate_rps, num_requests))
    for at, time_s in enumerate(times_s.tolist()):
        value = (tensor_of(request_value(0, at)),)
        yield round(time_s * NS_PER_S), RequestArrived(at + 1, workflows[at % len(workflows)], value)


@pytest.mark.parametrize("name", [*WORKLOADS])
@pytest.mark.parametrize("load", [0.3, 0.9])
def test_no_guess_begins_while_a_certain_call_waits(name: str, load: float) -> None:
    workload = workload_named(name)
    rate_rps = load * saturation_rps(workload, workload.num_replicas(None))
    checked = run(workload, arrivals_of([workload.workflow], rate_rps, 400))
    assert checked.num_first
    assert checked.num_guessed or load > 0.5  # some workloads do not guess under load


def test_nor_while_one_waits_that_cannot_share_the_batch() -> None:
    deployments = (
        Deployment(program=check, base_s=0.030, item_s=0.0002),
        Deployment(program=stage, base_s=0.010, item_s=0.001, num_replicas=2),
    )
    kinds = range(NUM_KINDS)
    workflows = [each for kind in kinds for each in (guarded(kind), guarded(kind), certain(kind))]
    workload = Workload("kinds", workflows[0], deployments)
    checked = run(workload, arrivals_of(workflows, 300, 3000))
    assert checked.num_guessed > 100
    assert checked.num_first > 100
