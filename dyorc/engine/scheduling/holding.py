"""Calls that are about to be ready, and whether a batch waits for them.

When a batch is sent, calls that need nothing but its results are *foreseen*: they will be ready when it ends, which its
program's T(n) = b + a*n predicts. Suppose one replica is idle, n calls are ready, and m more are foreseen in a time t. Starting
at once makes the m wait for the whole batch; running together saves one b. So holding gains m*(b - t) and costs n*(t + a*m). A
foreseen guess counts by its probability. On busy cores T(n) is only an average, and waiting for nothing is worse than either
choice; so t assumes a batch that is as late as twice its program's average.

Other calls are only expected, at their recent rate r. Replicas that always take what is there end up in a bunch, as buses do:
one takes what has piled up, the next find a call or two, and all are busy when the rest arrive. So the last idle replica waits
until the gap before the next one is free is shared evenly: with g the time until then, and h the time from the last other
replica's end to its own if it started now, it starts when n >= r*(g - h). If it can run two such batches before any other
replica is free, it does not wait.

A busy replica is usually sent its next batch a little ahead, so that it has no time without work: a *link time* l, in which a
result comes back and the next batch goes out. In a loop that separates requests for good into two groups that wait for each
other, since calls that follow from the running batch miss the one sent ahead. Suppose n are ready, and a share r of the calls
that end is followed by others, m from the running batch. Sending nothing ahead saves these m a time b - l now, and all n + m the
same in each of the r/(1 - r) later turns. It costs the n a time l + a*m.

Source: holding control of bus lines (Daganzo, "A headway-based approach to eliminate bus bunching", Transportation Research B
2009).
"""

import heapq
from collections.abc import Mapping

from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import NEVER_NS, Batch, Replica

_NS_PER_S = 1e9
_SLACK_NS = 100_000
"""How much later than foreseen a batch may end."""
_MARGIN = 2.0
"""A batch is assumed to be late by this many times its program's mean lateness."""

_MAX_RATIO = 0.95
"""A loop is not expected to go on for more than twenty turns."""


def foresee(pools: Mapping[str, ReplicaPool], batch: Batch, batches: Mapping[int, Batch]) -> None:
    """Adds the calls that will be ready when the latest batch in flight ends to those foreseen. Cost: proportional to them."""
    if batch.expected_ns is None:
        return
    at_ns = batch.expected_ns + int(_MARGIN * batch.replica.pool.lateness_ns.value)
    numbers: dict[str, float] = {}
    for call in batch.calls:
        for dependent in call.future.dependents:
            if isinstance(dependent, Call) and dependent.num_awaited == 1 and dependent.state is CallState.WAITING:
                probability = dependent.segment.probability() if dependent.is_guess else 1.0
                name = dependent.callee.name
                numbers[name] = numbers.get(name, 0.0) + probability
    batch.awaited_by = list(numbers)
    for name, number in numbers.items():
        foreseen = pools[name].foreseen
        while foreseen and foreseen[0][1] not in batches:
            heapq.heappop(foreseen)
        heapq.heappush(foreseen, (at_ns, batch.batch_id, number))


def waits_for_end(pool: ReplicaPool, running: Batch, num_ready: int) -> bool:
    """Returns whether the ready calls of a program wait until a running batch is back, to run with the calls that follow from
    it."""
    line, max_size = pool.latency.line, pool.program.options.max_batch_size
    if pool.max_cost is not None:
        cost = running.calls[0].cost
        line, max_size = pool.line_of(cost), pool.max_size(cost)
    if line is None:
        return False
    (base_s, item_s), ratio = line, min(pool.loop_ratio.ratio, _MAX_RATIO)
    link_s = max(0.0, pool.link_ns.value / _NS_PER_S)
    num_joining = max(0.0, min(ratio * len(running.calls), max_size - num_ready))
    num_later = (num_ready + num_joining) * ratio / (1 - ratio)
    return (num_joining + num_later) * (base_s - link_s) > num_ready * (link_s + item_s * num_joining)


def held_until_ns(
    pool: ReplicaPool,
    replica: Replica | None,
    num_ready: int,
    cost: float,
    deadline_ns: int,
    batches: Mapping[int, Batch],
    now_ns: int,
    since_ns: int,
) -> int:
    """Returns until when the only free replica waits before it takes the ready calls; not after `now_ns` if it does not wait.

    It waits no longer than a full batch takes, even if calls that were foreseen fail to come, time after time.

    Args:
        replica: The replica, if it is about to be idle; None if it is idle already.
        num_ready: How many calls are ready.
        cost: What each of them costs, as far as it is known: as the first.
        deadline_ns: The deadline of the most urgent of them.
        batches: The batches in flight.
        since_ns: Since when it waits; `now_ns` if it does not yet.
    """
    line, max_size = pool.latency.line, pool.program.options.max_batch_size
    if pool.max_cost is not None:
        line, max_size = pool.line_of(cost), pool.max_size(cost)
    if line is None or num_ready >= max_size:
        return now_ns
    until_ns = max(
        _until_foreseen_ns(pool, num_ready, max_size, batches, line, now_ns),
        _until_even_ns(pool, replica, num_ready, line, now_ns),
    )
    full_ns = int((line[0] + line[1] * max_size) * _NS_PER_S)
    return min(until_ns, since_ns + full_ns) if until_ns + full_ns < deadline_ns else now_ns


def _until_foreseen_ns(
    pool: ReplicaPool, num_ready: int, max_size: int, batches: Mapping[int, Batch], line: tuple[float, float], now_ns: int
) -> int:
    foreseen = pool.foreseen
    while foreseen and (foreseen[0][1] not in batches or foreseen[0][0] + _SLACK_NS <= now_ns):
        heapq.heappop(foreseen)
    if not foreseen:
        return now_ns
    at_ns, _, num_foreseen = foreseen[0]
    base_s, item_s = line
    wait_s = max(0.0, (at_ns - now_ns) / _NS_PER_S)
    num_joining = min(num_foreseen, max_size - num_ready)
    gains = num_joining * (base_s - wait_s) > num_ready * (wait_s + item_s * num_joining)
    return at_ns + _SLACK_NS if gains else now_ns


def _until_even_ns(pool: ReplicaPool, replica: Replica | None, num_ready: int, line: tuple[float, float], now_ns: int) -> int:
    rate = pool.demand.per_s(now_ns)
    next_ns = pool.next_free_ns(NEVER_NS, replica)
    duration_ns = int((line[0] + line[1] * num_ready) * _NS_PER_S)
    if not rate or next_ns >= now_ns + 2 * duration_ns:
        return now_ns  # this replica will be free again, and once more, before any other
    last_ns = max(next_ns, pool.last_free_ns)
    share_ns = int(num_ready / rate * _NS_PER_S)
    return max(now_ns, min(next_ns - share_ns, (next_ns + last_ns - duration_ns - share_ns) // 2))
