"""Requests that wait for each other's places: found among running calls that cannot go on by themselves.

A running call keeps its place while it has no credit, or nothing to read. If its request cannot read or feed it because that
waits for a place of another program, and all those places are kept in the same way, nothing would ever move:

    request 1   has a place of `talk`, its stream is not read ──> waits for a place of `sing`
    request 2   has a place of `sing`, its stream is not read ──> waits for a place of `talk`

A call without credit can be lent some: it goes on to its end, and its place is free. Its parts wait in memory meanwhile, so
credit is lent only where nothing else helps.
"""

from collections.abc import Iterable, Iterator, Mapping

from dyorc.engine.model.journal import Entry
from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import Batch


def needs_way(call: Call) -> bool:
    """Returns whether the request of a running call waits for another place of the same program."""
    return any(program == call.callee.name for program in _awaited(call))


def jammed_pools(pool: ReplicaPool, pools: Mapping[str, ReplicaPool]) -> list[ReplicaPool]:
    """Returns the pools, this one first, whose places will never be free, since they wait for each other; empty if one will be.

    Cost: looks at the running calls of the pools that they wait for, and stops at the first that can go on.
    """
    awaited: dict[str, list[set[str]]] = {}
    pending = [pool.program.name]
    while pending:
        name = pending.pop()
        if name not in awaited and (kept := _kept_for(pools.get(name))) is not None:
            awaited[name] = kept
            pending += {other for programs in kept for other in programs}
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


def _kept_for(pool: ReplicaPool | None) -> list[set[str]] | None:
    """Returns of each running call of a pool for which other programs its request waits; None if one of them can go on."""
    if pool is None or not pool.ongoing or pool.num_idle:
        return None
    kept: list[set[str]] = []
    for call, batch in pool.ongoing.items():
        ongoing = batch.ongoing
        if ongoing is None or ongoing.is_cancelled or (ongoing.has_credit and not ongoing.starving):
            return None
        if not (programs := set(_awaited(call))):
            return None
        kept.append(programs)
    return kept


def _awaited(call: Call) -> Iterator[str]:
    """Yields the programs for whose places the request of a running call waits."""
    for entry in call.segment.task.request.yielding:
        if _is_awaited(entry):
            yield entry.callee.name


def _is_awaited(entry: Entry) -> bool:
    """Returns whether an entry is a call that has no place, and something waits for its next part, or for its start."""
    if not isinstance(entry, Call) or entry.state is not CallState.QUEUED:
        return False
    parts = entry.parts
    return parts is not None and bool(parts.last.dependents or any(stream.awaits_start for stream in parts.taken_by))
