"""Requests that wait for each other's places: found among running calls that cannot go on by themselves.

A running call keeps its place while it has no credit, or nothing to read. If its request cannot read or feed it because that
waits for a place of another program, and all those places are kept in the same way, nothing would ever move:

    request 1   has a place of `talk`, its stream is not read ──> waits for a place of `sing`
    request 2   has a place of `sing`, its stream is not read ──> waits for a place of `talk`

A call without credit can be lent some: it goes on to its end, and its place is free. Its parts wait in memory meanwhile, so
credit is lent only where nothing else helps.

Cost: each turn looks at running calls, which `max_ongoing` limits, and not at the calls that wait: a request keeps those in
`Request.awaiting_place`.
"""

from collections.abc import Iterable, Iterator, Mapping

from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.model.request_tree import Request
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import Batch


def needs_way(call: Call) -> bool:
    """Returns whether the request of a running call waits for another place of the same program."""
    return is_place_awaited(call.segment.task.request, call.callee.name)


def jammed_pools(pool: ReplicaPool, pools: Mapping[str, ReplicaPool]) -> list[ReplicaPool]:
    """Returns the pools, this one first, whose places will never be free, since they wait for each other; empty if one will be.

    Cost: looks at the running calls of the pools that they wait for, and stops at the first that can go on.
    """
    awaited: dict[str, list[list[str]]] = {}
    pending = [pool.program.name]
    while pending:
        name = pending.pop()
        if name not in awaited and (kept := _kept_for(pools.get(name))) is not None:
            awaited[name] = kept
            pending += dict.fromkeys([other for programs in kept for other in programs])
    while freed := [name for name, kept in awaited.items() if not all(any(map(awaited.__contains__, each)) for each in kept)]:
        for name in freed:
            del awaited[name]
    return [pools[name] for name in awaited] if pool.program.name in awaited else []


def held_up(pool: ReplicaPool) -> Iterator[Batch]:
    """Yields the batches of a pool that have sent as many parts as they may."""
    for batch in (pool.ongoing or {}).values():
        if batch.ongoing is not None and not batch.ongoing.has_credit and not batch.ongoing.is_cancelled:
            yield batch


def starving_for_place(pools: Iterable[ReplicaPool]) -> Call | None:
    """Returns a running call that may run again, and reads the stream of one that has no place; None if there is none.

    A call gets a place only after those whose streams it reads, so there is none unless a replica was lost.
    """
    for pool in pools:
        for call, batch in (pool.ongoing or {}).items():
            producers = [call.streams[stream].parts.producer for stream in (batch.ongoing.starving if batch.ongoing else ())]
            is_starving = any(isinstance(producer, Call) and producer.state is CallState.QUEUED for producer in producers)
            if is_starving and call.callee.options.is_repeatable:
                return call
    return None


def is_place_awaited(request: Request, program: str) -> bool:
    """Returns whether a request waits for a place of a program: one of its calls is queued, and something waits for its next
    part, or for its start.

    Cost: one call, and the ones that no longer count, which are dropped here.
    """
    calls = request.awaiting_place.get(program)
    while calls:
        call, _ = calls.popitem()  # the last, since a dict looks for its first entry among the places of all that were removed
        if is_awaited(call):
            calls[call] = None
            return True
    return False


def is_awaited(call: Call) -> bool:
    """Returns whether a call of a request has no place, and something waits for its next part, or for its start."""
    parts = call.parts
    if call.state is not CallState.QUEUED or parts is None:
        return False
    return bool(parts.last.dependents) or any(stream.awaits_start for stream in parts.taken_by)


def _kept_for(pool: ReplicaPool | None) -> list[list[str]] | None:
    """Returns of each running call of a pool for which other programs its request waits; None if one of them can go on."""
    if pool is None or not pool.ongoing or pool.num_idle:
        return None
    kept: list[list[str]] = []
    awaited: dict[Request, list[str]] = {}
    for call, batch in pool.ongoing.items():
        ongoing = batch.ongoing
        if ongoing is None or ongoing.is_cancelled or (ongoing.has_credit and not ongoing.starving):
            return None
        request = call.segment.task.request
        programs = awaited.get(request)
        if programs is None:
            programs = awaited[request] = [name for name in request.awaiting_place if is_place_awaited(request, name)]
        if not programs:
            return None
        kept.append(programs)
    return kept
