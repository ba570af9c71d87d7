"""Records are kept within their room, the remarkable ones longer, and are found at once."""

import gc
import random
import tracemalloc
from collections.abc import Callable

import pytest

from dyorc.config import RecordsConfig
from dyorc.engine.request_trace import BatchTrace, CallTrace, DecisionTrace, Move, RequestTrace
from dyorc.telemetry.record import Origin, RequestRecord
from dyorc.telemetry.record_store import Query, RecordStore
from dyorc.telemetry.retention import NUM_REFUSED, NUM_SLOWEST, num_bytes_of
from tests.unit.telemetry.stories import batch, call, ns, record

_ONE = num_bytes_of(record(10, request_id="r1"), 1.0)


def anything(found: RequestRecord) -> bool:
    """Everybody may see everything."""
    return True


def numbered(number: int, duration: float = 10, **others: object) -> RequestRecord:
    """Returns a request that arrived `number` seconds after the first."""
    found = record(duration, request_id=f"r{number % 10}", number=number, **others)
    shift_ns = number * 1_000_000_000
    found.origin.arrived_ns += shift_ns
    found.started_ns += shift_ns
    found.ended_ns += shift_ns
    return found


def store_for(num: int, slow_s: float = 1.0) -> RecordStore:
    """Returns a store with room for so many records without calls."""
    return RecordStore(RecordsConfig(max_bytes=num * _ONE, slow_s=slow_s))


def numbers(store: RecordStore, **query: object) -> list[int]:
    """Returns the numbers of listed records."""
    return [found.number for found in store.select(Query(**query), anything)]  # type: ignore[arg-type]


def test_the_oldest_make_room() -> None:
    store = store_for(10)
    for number in range(100):
        store.take(numbered(number, duration=10 - number / 1000))  # the first ones are the slowest
    held = store.usage(anything)
    assert held.num == 10
    assert held.num_bytes <= 10 * _ONE
    assert numbers(store)[:5] == [99, 98, 97, 96, 95]
    assert all(store.by_number(number) is not None for number in numbers(store))
    assert store.by_number(50) is None


def refused(number: int, outcome: str = "capacity") -> RequestRecord:
    """Returns a request that was refused."""
    found = numbered(number, outcome=outcome, error="no room")
    found.number, found.story = -number, None
    found.origin.request_id = f"refused-{number}"
    return found


def test_a_flood_of_refusals_takes_no_room_from_others_and_hides_no_other_kind() -> None:
    store = store_for(2000)
    for number in range(1000):
        store.take(numbered(number))
    store.take(refused(1000, "invalid_input"))
    for number in range(1001, 4000):
        store.take(refused(number))
    assert store.usage(anything).num == 1000 + 1 + NUM_REFUSED
    assert store.find("refused-1000", anything) is not None
    assert store.find("refused-1001", anything) is None
    assert numbers(store, outcome="failed") == [-number for number in range(3999, 3999 - NUM_REFUSED, -1)][:50]
    assert len(store.since(ns(0), anything)) == 1000 + 1 + NUM_REFUSED


def test_refusals_and_others_are_listed_together_in_order() -> None:
    store = store_for(100)
    for number in range(0, 10, 2):
        store.take(numbered(number))
        store.take(refused(number + 1))
    assert numbers(store) == [-9, 8, -7, 6, -5, 4, -3, 2, -1, 0]


def test_in_a_small_room_refusals_take_a_small_part() -> None:
    store = store_for(32)
    for number in range(100):
        store.take(refused(number))
        store.take(numbered(number))
    listed = numbers(store, limit=500)
    assert 1 <= sum(number < 0 for number in listed) <= 2
    assert sum(number > 0 for number in listed) >= 29


def test_a_list_goes_on_where_another_ended() -> None:
    store = store_for(100)
    for number in range(10):
        store.take(numbered(number, duration=10 + (number * 7) % 10))
    for order in ("latest", "slowest"):
        whole = store.select(Query(order=order, limit=10), anything)
        last = whole[3]
        beyond_ns = last.duration_ns if order == "slowest" else last.ended_ns
        assert store.select(Query(order=order, limit=3, beyond_ns=beyond_ns), anything) == whole[3:6]


def test_a_record_that_is_too_large_is_not_kept() -> None:
    store = store_for(1)
    store.take(numbered(0, error="x" * 100_000, outcome="internal"))
    assert store.usage(anything).num == 0
    assert store.find("r0", anything) is None


def test_failed_and_slow_requests_are_kept_longer_and_neither_push_the_other_out() -> None:
    store = store_for(40)
    store.take(numbered(0, outcome="internal"))
    store.take(numbered(1, duration=2000))
    for number in range(2, 500):
        store.take(numbered(number))
    assert {0, 1} <= set(numbers(store))
    for number in range(500, 700):
        store.take(numbered(number, outcome="internal"))
    kept = numbers(store)
    assert 1 in kept
    assert 0 not in kept
    assert len(kept) == 40
    assert numbers(store, order="slowest", limit=1) == [1]


def test_the_slowest_of_each_workflow_are_kept_however_quick_they_were() -> None:
    store = store_for(2 * NUM_SLOWEST + 60)
    durations = random.Random(1).sample(range(3, 900), 400)
    for number, duration in enumerate(durations):
        store.take(numbered(number, duration=duration))
        store.take(numbered(1000 + number, duration=2.5, workflow="tiny"))
    latest = store.select(Query(workflow="tiny"), anything)
    assert len(latest) > NUM_SLOWEST
    slowest = store.select(Query(workflow="classify", order="slowest", limit=NUM_SLOWEST), anything)
    assert [round(found.duration_ns / 1e6) for found in slowest] == sorted(durations, reverse=True)[:NUM_SLOWEST]


def test_it_is_decided_late_whether_a_request_was_slow_since_its_client_may_still_be_reading() -> None:
    store = store_for(4 * NUM_SLOWEST)
    slow = numbered(0)
    store.take(slow)
    slow.origin.written_ns = slow.ended_ns + 5_000_000_000
    for number in range(1, 1000):
        store.take(numbered(number, duration=100))
    assert numbers(store, order="slowest", limit=1) == [0]


def test_a_query_names_workflow_outcome_order_and_number() -> None:
    store = store_for(100)
    for number in range(9):
        store.take(numbered(number, duration=10 + number, workflow="ab"[number % 2], outcome="ok" if number % 3 else "internal"))
    assert numbers(store) == [8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert numbers(store, limit=2) == [8, 7]
    assert numbers(store, workflow="a", order="slowest", limit=2) == [8, 6]
    assert numbers(store, outcome="failed") == [6, 3, 0]
    assert numbers(store, outcome="ok", workflow="b") == [7, 5, 1]


def test_only_what_may_be_seen_is_found() -> None:
    """Two tenants chose the same id."""
    store = store_for(100)
    store.take(numbered(0, tenant="a"))
    store.take(numbered(10, tenant="b"))

    def of(tenant: str) -> Callable[[RequestRecord], bool]:
        return lambda found: found.tenant == tenant

    assert [store.find("r0", of(tenant)) for tenant in "abc"] == [store.by_number(0), store.by_number(10), None]
    assert [found.number for found in store.select(Query(), of("a"))] == [0]
    assert store.usage(of("a")).num == 1


def test_what_ended_since_a_time() -> None:
    store = store_for(100)
    for number in range(5):
        store.take(numbered(number))
    assert [found.number for found in store.since(ns(3000), anything)] == [4, 3]


def test_a_request_that_was_not_recorded_is_not_kept() -> None:
    store = store_for(10)
    found = numbered(0)
    found.story = None
    store.take(found)
    assert store.usage(anything).num == 0


# Size


def _cascade(number: int, batches: list[list[BatchTrace]], decided: bool) -> RequestRecord:
    """Returns a request of two calls, in batches that are shared, and perhaps a decision; nothing in it is shared otherwise."""
    base = ns(number)
    calls: list[CallTrace] = []
    for index, shared in enumerate(batches):
        at = base + index * 10_000_000
        found = call(2 * number + index + 10_000, "large", 0, 0, 0, sources=[2 * number + 9_999] if index else ())
        found.asked_ns, found.queued_ns, found.ended_ns = at + 1, at + 2, at + 3
        found.batches = [shared[number % len(shared)]]
        calls.append(found)
    origin = Origin(request_id=f"{number:032x}", transport="http", arrived_ns=base + 4, read_ns=base + 5)
    story = RequestTrace(number + 1_000_000, base + 6)
    story.calls.extend(calls)
    if decided:
        reached = DecisionTrace("app.py:7", base + 7, [number + 10_000], decided_ns=base + 8, outcome="no")
        reached.followed, reached.gains_ms = {"yes": number / 7}, {"yes": number / 3}
        story.add_decision(reached)
    return RequestRecord(
        number=number + 1_000_000,
        origin=origin,
        workflow="classify",
        tenant="",
        started_ns=base + 9,
        ended_ns=base + 10,
        outcome="ok",
        story=story,
    )


def _batch(number: int, size: int) -> BatchTrace:
    at = ns(number)
    moves = [Move("message", number + 1000, number / 7), Move("shm", number + 2000, number / 11)]
    found = batch(
        "large",
        0,
        0,
        0,
        size=size,
        requests=[number * size + at % 7 + one for one in range(size)],
        gather_s=number / 3,
        moves=moves,
    )
    found.sent_ns, found.started_ns, found.ended_ns, found.publish_s = at + 1, at + 2, at + 3, number / 13
    found.batch_id = at
    return found


@pytest.mark.parametrize("size", [1, 4, 32])
@pytest.mark.parametrize("decided", [False, True])
def test_the_estimate_of_a_records_size_is_near_the_truth(size: int, decided: bool) -> None:
    num = 2000
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        store = RecordStore(RecordsConfig())
        batches = [[_batch(one + 3000 * index, size) for one in range(num // size)] for index in range(2)]
        for number in range(num):
            store.take(_cascade(number, batches, decided))
        del batches
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    held = store.usage(anything)
    assert held.num == num
    print(f"size {size}, decided {decided}: {(after - before) / num:.0f} bytes each, estimated {held.num_bytes / num:.0f}")
    assert 0.5 < held.num_bytes / (after - before) < 2
