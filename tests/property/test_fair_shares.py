"""A program's queue under any order of arrivals, withdrawals and batches: nothing is lost, and no tenant gets more than its
share.
"""

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dyorc.engine.engine_statistics import ModelRecord
from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.model.request_context import QueueOrder, RequestContext
from dyorc.engine.model.speculation_budget import Round
from dyorc.engine.scheduling.fair_shares import SharedLanes
from dyorc.engine.scheduling.queues import CallQueue
from tests.unit.engine.programs import add_one

pytestmark = pytest.mark.pure  # its calls belong to no request

WEIGHTS = {"a": 1.0, "b": 1.0, "c": 2.0, "d": 0.5, "e": 5.0}
LANES = [(("x",), ()), (("y",), ()), (("z",), ())]
tenants = st.sampled_from(sorted(WEIGHTS))


class Calls:
    """Makes calls, numbered as they come."""

    def __init__(self) -> None:
        self.number = 0

    def make(self, tenant: str, lane: int = 0, priority: int = 0, deadline: int = 0, can_be_dropped: bool = True) -> Call:
        self.number += 1
        context = RequestContext(
            QueueOrder(0, deadline - 10 * priority, deadline, self.number),
            tenant,
            WEIGHTS[tenant],
            cast(Any, None),
            ModelRecord("none"),
            Round(False, 0),
        )
        context.can_be_dropped = can_be_dropped
        request = SimpleNamespace(context=context)
        call = Call(add_one, (), (), cast(Any, SimpleNamespace(task=SimpleNamespace(request=request))))
        call.call_id = self.number
        call.batch_key = cast(Any, LANES[lane])
        return call


def tenant_of(call: Call) -> str:
    return call.context.tenant


class QueueStates(RuleBasedStateMachine):
    """Beside the queue stands a model: the waiting calls, in a list. Every slot costs 1."""

    num_lanes = 1

    def __init__(self) -> None:
        super().__init__()
        self.calls = Calls()
        self.queue = CallQueue()
        self.waiting: list[Call] = []
        self.retries: list[list[Call]] = []
        self.used: Counter[str] = Counter()
        self.since: dict[tuple[str, str], tuple[float, float]] = {}
        """What two tenants had used, over their weights, since when both wait all the time."""

    @rule(tenant=tenants, lane=st.integers(0, 2), number=st.integers(1, 12), data=st.data())
    def add(self, tenant: str, lane: int, number: int, data: st.DataObject) -> None:
        for _ in range(number):
            priority, deadline = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 9))
            call = self.calls.make(tenant, lane % self.num_lanes, priority, deadline)
            self.queue.add(call)
            self.waiting.append(call)
        self.note_who_waits()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), number=st.integers(1, 40))
    def withdraw(self, data: st.DataObject, number: int) -> None:
        for _ in range(min(number, len(self.waiting))):
            self.leave(self.waiting[data.draw(st.integers(0, len(self.waiting) - 1))])
        self.note_who_waits()

    def leave(self, call: Call) -> None:
        self.waiting.remove(call)
        self.queue.withdraw(call)
        call.withdraw()

    @precondition(lambda self: self.waiting)
    @rule(tenant=tenants)
    def withdraw_all_of_a_tenant(self, tenant: str) -> None:
        for call in [call for call in self.waiting if tenant_of(call) == tenant]:
            self.leave(call)
        self.note_who_waits()

    @rule(number=st.integers(1, 3), tenant=tenants)
    def retry(self, number: int, tenant: str) -> None:
        group = [self.calls.make(tenant) for _ in range(number)]
        self.queue.add_retry(list(group))
        self.retries.append(group)

    @precondition(lambda self: any(self.retries))
    @rule(data=st.data())
    def withdraw_from_a_retry(self, data: st.DataObject) -> None:
        group = data.draw(st.sampled_from([group for group in self.retries if group]))
        call = group.pop()
        self.queue.withdraw(call)
        call.withdraw()

    @precondition(lambda self: self.waiting)
    @rule(lane=st.integers(0, 2), tenant=tenants)
    def take_out(self, lane: int, tenant: str) -> None:
        wanted = [call for call in self.waiting if tenant_of(call) == tenant and call.batch_key == LANES[lane]]
        assert set(self.queue.take_out(lambda call: call in wanted)) == set(wanted)
        for call in wanted:
            self.waiting.remove(call)
            call.state = CallState.WAITING
        self.note_who_waits()

    @precondition(lambda self: len(self.queue))
    @rule(size=st.integers(1, 8), late=st.sampled_from([0, 0, 0, 4]))
    def take(self, size: int, late: int) -> None:
        first = self.queue.peek()
        num_next = self.queue.count_next(size)
        calls, is_retry, dropped = self.queue.take(size, late)
        self.retries = [group for group in self.retries if group]
        if self.retries:
            assert is_retry
            assert calls == self.retries.pop(0)
            for call in calls:
                call.state = CallState.RUNNING
            self.since.clear()  # it goes before all others, whoever's turn it is
            return
        assert not is_retry
        assert all(call.order.deadline_ns < late for call in dropped)
        assert all(call.order.deadline_ns >= late for call in calls)
        assert num_next == len(calls) or dropped
        assert first in (*calls[:1], *dropped)
        [key] = {call.batch_key for call in (*calls, *dropped)}
        in_lane = [call for call in self.waiting if call.batch_key == key]
        for tenant in WEIGHTS:
            theirs = sorted((call for call in in_lane if tenant_of(call) == tenant), key=lambda call: call.order)
            taken = [call for call in (*calls, *dropped) if tenant_of(call) == tenant]
            assert sorted(taken, key=lambda call: call.order) == theirs[: len(taken)], "not the most urgent of its tenant"
        for call in (*dropped, *calls):
            self.waiting.remove(call)
            call.state = CallState.RUNNING
            self.used[tenant_of(call)] += call in calls
            self.note_who_waits()
            self.shares_are_fair()

    def note_who_waits(self) -> None:
        waiting = {tenant_of(call) for call in self.waiting}
        self.since = {pair: used for pair, used in self.since.items() if waiting.issuperset(pair)}
        for pair in ((one, other) for one in waiting for other in waiting if one < other):
            self.since.setdefault(pair, (self.used[pair[0]], self.used[pair[1]]))

    def shares_are_fair(self) -> None:
        """Tenants that wait all the time get equal shares relative to their weights, up to one slot of each (theorem 1 of the
        source).

        A batch takes calls of one lane, so in other lanes a tenant may be a batch ahead.
        """
        slots = 1 if self.num_lanes == 1 else 9
        for (one, other), (before_one, before_other) in self.since.items():
            apart = (self.used[one] - before_one) / WEIGHTS[one] - (self.used[other] - before_other) / WEIGHTS[other]
            assert abs(apart) <= slots * (1 / WEIGHTS[one] + 1 / WEIGHTS[other]) + 1e-9, f"{one} and {other} are {apart} apart"

    @invariant()
    def it_holds_what_waits(self) -> None:
        expected = [*self.waiting, *(call for group in self.retries for call in group)]
        assert len(self.queue) == len(expected)
        assert Counter(self.queue) == Counter(expected)

    @invariant()
    def it_remembers_nothing_of_who_left(self) -> None:
        if isinstance(lanes := self.queue._lanes, SharedLanes):  # pyright: ignore[reportPrivateUsage]
            assert sum(lanes.num_calls_by_tenant().values()) == lanes.size == len(self.waiting)
            assert set(lanes._num_in) == set(lanes._turns_in) == {call.batch_key for call in self.waiting}  # pyright: ignore[reportPrivateUsage]
            first = lanes._turns.first()  # pyright: ignore[reportPrivateUsage]
            for share in lanes._shares.values():  # pyright: ignore[reportPrivateUsage]
                assert all(share.lanes.num_in(key) for key in share.lanes.keys()), "an empty lane was kept"  # noqa: SIM118
                assert share.lanes.size or (first is not None and share.tag > first.tag), f"{share.tenant} has left"


class QueueStatesInLanes(QueueStates):
    """The same with calls that may not share a batch."""

    num_lanes = 3


TestQueueStates: Any = QueueStates.TestCase
TestQueueStates.settings = settings(max_examples=25, stateful_step_count=30)
TestQueueStatesInLanes: Any = QueueStatesInLanes.TestCase
TestQueueStatesInLanes.settings = settings(max_examples=25, stateful_step_count=30)


@settings(max_examples=20)
@given(
    weights=st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0, 8.0]), min_size=2, max_size=5),
    size=st.integers(1, 32),
    arrivals=st.randoms(use_true_random=False),
)
def test_shares_of_slots_converge_to_the_weights(weights: list[float], size: int, arrivals: Any) -> None:
    """Each tenant asks for more than its share, at random times, and the first asks for most."""
    calls, queue = Calls(), CallQueue()
    names = [f"tenant {at}" for at in range(len(weights))]
    WEIGHTS.update(zip(names, weights, strict=True))
    used: Counter[str] = Counter()
    for name in names:
        for _ in range(2 * size + 8):
            queue.add(calls.make(name))
    for _ in range(200):
        taken, _, _ = queue.take(size)
        used.update(tenant_of(call) for call in taken)
        for call in taken:
            call.state = CallState.RUNNING
            queue.add(calls.make(tenant_of(call)))
        for _ in range(arrivals.randrange(4)):
            queue.add(calls.make(names[0]))
    for name, weight in zip(names, weights, strict=True):
        share = 200 * size * weight / sum(weights)
        assert abs(used[name] - share) <= 1 + 2 * weight / min(weights), f"{used} for {weights}"
    for name in names:
        del WEIGHTS[name]


@settings(max_examples=20)
@given(num_before=st.integers(0, 300), size=st.integers(1, 32), num_tenants=st.integers(1, 20))
def test_nobody_starves(num_before: int, size: int, num_tenants: int) -> None:
    """A newcomer's call is in the next batch, however many calls others have waiting, unless there are more newcomers than
    slots.
    """
    calls, queue = Calls(), CallQueue()
    for _ in range(num_before + size):
        queue.add(calls.make("a", priority=9))
    for _ in range(num_before // size // 2):
        for call in queue.take(size)[0]:
            call.state = CallState.RUNNING
    for at in range(num_tenants):
        WEIGHTS[f"new {at}"] = 1.0
        queue.add(calls.make(f"new {at}"))
    num_batches = -(-num_tenants // size)
    served = [tenant_of(call) for _ in range(num_batches) for call in queue.take(size)[0]]
    assert sum(tenant != "a" for tenant in served) == num_tenants
    for at in range(num_tenants):
        del WEIGHTS[f"new {at}"]


def test_a_retried_group_goes_first_and_is_paid_for() -> None:
    """A tenant that sends only failing calls pays for its retries."""
    calls, queue = Calls(), CallQueue()
    for tenant in "ab":
        for _ in range(20):
            queue.add(calls.make(tenant))
    group = [calls.make("a") for _ in range(4)]
    queue.add_retry(group)
    assert queue.take(8) == (group, True, [])
    assert Counter(tenant_of(call) for call in queue.take(8)[0]) == {"a": 2, "b": 6}


def test_calls_with_effects_or_without_waiters_are_never_late() -> None:
    calls, queue = Calls(), CallQueue()
    kept, late = calls.make("a", deadline=5, can_be_dropped=False), calls.make("a", deadline=5)
    queue.add(kept)
    queue.add(late)
    assert queue.take(8, 6) == ([kept], False, [late])
    assert not len(queue)


def test_a_retried_group_is_paid_for_even_by_a_tenant_that_has_left() -> None:
    calls, queue = Calls(), CallQueue()
    for _ in range(20):
        queue.add(calls.make("b"))
    queue.add(calls.make("d"))  # weighs half: after one slot it is due at 2
    assert Counter(tenant_of(call) for call in queue.take(2)[0]) == {"b": 1, "d": 1}
    queue.add_retry([calls.make("d"), calls.make("d")])
    queue.take(8)  # now it is due at 6
    queue.take(2)
    queue.add(calls.make("d"))
    assert [tenant_of(call) for call in queue.take(4)[0]] == ["b", "b", "b", "d"]
