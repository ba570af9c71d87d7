"""Stored tensors: leases, and what is restored."""

from collections import Counter

from dyorc.engine.engine import Engine
from dyorc.engine.invariants.walks import (
    InvariantError,
    is_stored,
    placed_calls,
    scheduler_of,
    unsent_parts,
)
from dyorc.engine.model.calls import Call, CallState
from dyorc.engine.model.futures import Future
from dyorc.engine.model.journal import StreamPart
from dyorc.engine.model.requests import Request, Restoration, RestorationWaiter


def leases_agree(engine: Engine) -> None:
    """A block is known as long as somebody needs it: requests that keep rows of it, batches, fetches and consumers of parts that
    read it."""
    leases = [blocks for request in engine.tasks.requests.values() for blocks in request.pinned.values()]
    leases += [batch.blocks for batch in scheduler_of(engine).batches.values()]
    leases += [blocks for _, blocks in engine.tasks.fetches.in_progress.values()]
    streams = [request.stream for request in engine.tasks.requests.values() if request.stream is not None]
    leases += [part.blocks for stream in streams for part in stream.untaken.values()]
    expected = engine.leases.expected(leases)
    if expected != engine.leases.counts:
        raise InvariantError(f"leases are {expected}, counted are {engine.leases.counts}")
    if missing := scheduler_of(engine).replicas.keys() - engine.leases.holders:
        raise InvariantError(f"replicas {missing} may hold tensors, but count as gone")
    strangers = {holder for holder, _ in engine.leases.counts} - engine.leases.holders
    if strangers or not engine.leases.lost <= engine.leases.counts.keys():
        raise InvariantError(f"blocks of {strangers} are known, which are gone; lost are {engine.leases.lost}")
    if len(scheduler_of(engine).staging) and not engine.leases.counts:
        raise InvariantError("blocks are staged that nobody needs")


def batches_read_what_they_were_given(engine: Engine) -> None:
    """A batch in flight has a lease on each of its stored inputs, also for calls that were withdrawn."""
    for batch in scheduler_of(engine).batches.values():
        if Counter(batch.blocks) != Counter(block for call in batch.calls for block in call.blocks):
            raise InvariantError(f"batch {batch.batch_id} has leases on {batch.blocks}")


def queued_calls_have_their_inputs(engine: Engine) -> None:
    """No call whose inputs cannot be read waits for a replica."""
    for pool in scheduler_of(engine).pools.values():
        for call in (*pool.queue, *pool.guesses):
            if not engine.leases.are_there(call.blocks):
                raise InvariantError(f"{call!r} is {call.state.name}, but its inputs were lost")
            request = call.segment.task.request
            if any(argument.future not in request.pinned for argument in call.arguments if is_stored(argument.future)):
                raise InvariantError(f"{call!r} is {call.state.name}, but nobody keeps its inputs")


def restorations_are_under_way(engine: Engine) -> None:
    """Each restoration runs, or waits for others that are under way, and somebody needs its future."""
    placed = {call for _, call in placed_calls(engine)}
    for request in engine.tasks.requests.values():
        waits = Counter(
            waiter for each in request.restoring.values() for waiter in each.waiters if isinstance(waiter, Call | Restoration)
        )
        for future, restoration in request.restoring.items():
            call = restoration.call
            if call is None:
                is_odd = not restoration.num_awaited or restoration.num_awaited != waits[restoration]
            elif call.state is CallState.WAITING:
                is_odd = not call.num_awaited or call.num_awaited != waits[call]
            else:
                is_odd = call not in placed or call.is_guess
            if is_odd or restoration.future is not future or not any(_needs(engine, waiter) for waiter in restoration.waiters):
                raise InvariantError(f"{restoration!r} by {call!r} waits for {waits}, needed by {restoration.waiters}")


def _needs(engine: Engine, waiter: RestorationWaiter) -> bool:
    match waiter:
        case Call():
            return waiter.state is CallState.WAITING
        case Restoration():
            return waiter.request.restoring.get(waiter.future) is waiter
        case Future():
            return waiter in engine.tasks.fetches.waiters
        case StreamPart():
            return waiter in unsent_parts(waiter.segment.task.request)
        case Request():
            return waiter.is_untaken or not waiter.is_answered
