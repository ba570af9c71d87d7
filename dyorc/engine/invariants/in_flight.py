"""Walks over everything in flight, for the invariants."""

from collections.abc import Iterable, Iterator
from itertools import islice

from dyorc.core.tensor import blocks_of
from dyorc.engine.engine import Engine
from dyorc.engine.model.futures import Argument, Waiter
from dyorc.engine.model.journal import BranchPoint, Entry, StreamPart
from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.model.request_tree import Request, Task, TaskState
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import Batch
from dyorc.engine.scheduling.scheduler import Scheduler


class InvariantError(AssertionError):
    """The engine's state contradicts itself: a bug of ours. The text names the object."""


def scheduler_of(engine: Engine) -> Scheduler:
    """Returns the engine's scheduler.

    Raises:
        TypeError: If it is not the one that serves: these checks do not know its state.
    """
    if not isinstance(engine.scheduler, Scheduler):
        raise TypeError(f"the invariants are those of a Scheduler, the engine has a {type(engine.scheduler).__name__}")
    return engine.scheduler


def pools(engine: Engine) -> Iterable[ReplicaPool]:
    return scheduler_of(engine).pools.values()


def batches(engine: Engine) -> Iterable[Batch]:
    return scheduler_of(engine).batches.values()


def requests(engine: Engine) -> Iterable[Request]:
    return engine.tasks.requests.values()


def entries_of(request: Request) -> Iterator[Entry]:
    """Yields the request's root, and all calls and tasks below it."""
    pending: list[Entry] = [request.root] if request.root is not None else []
    while pending:
        entry = pending.pop()
        yield entry
        if isinstance(entry, Task):
            pending.extend(entry.entries())


def calls_of(request: Request) -> Iterator[Call]:
    return (entry for entry in entries_of(request) if isinstance(entry, Call))


def all_calls(engine: Engine) -> Iterator[Call]:
    return (call for request in requests(engine) for call in calls_of(request))


def tasks_of(request: Request) -> Iterator[Task]:
    return (entry for entry in entries_of(request) if isinstance(entry, Task))


def active_tasks(engine: Engine) -> Iterator[Task]:
    for request in requests(engine):
        yield from (task for task in tasks_of(request) if task.state is TaskState.ACTIVE)


def open_points(task: Task) -> Iterator[BranchPoint]:
    ends = (segment.end for segment in task.journal.below())
    return (end for end in ends if isinstance(end, BranchPoint) and end.is_open)


def waiters_of(request: Request) -> "Iterator[Call | Waiter]":
    """Yields everything in a request that waits for values."""
    for entry in entries_of(request):
        if isinstance(entry, Task):
            yield from unsent_parts(entry)
        if isinstance(entry, Call):
            if entry.state is CallState.WAITING:
                yield entry
            for feed in entry.feeds:
                if feed.is_live and feed.num_awaited:
                    yield feed
        elif entry.state is TaskState.RETURNED:
            if not entry.callee.is_streaming:
                yield entry
        elif entry.state is TaskState.ACTIVE:
            yield from open_points(entry)
            yield from (path for path in entry.paths if path.end is None and path.undecided is None and not path.awaits_room)


def placed_calls(engine: Engine) -> Iterator[tuple[str, Call]]:
    for pool in pools(engine):
        for queue in (*pool.queues(), pool.suspects, *pool.queues_of_guesses()):
            yield from (("in a queue", call) for call in queue)
    for batch in batches(engine):
        yield from ((f"in batch {batch.batch_id}", call) for call in batch.calls)


def unsent_parts(task: Task) -> list[StreamPart]:
    """Returns parts that wait for their tensors: lost ones, and the next one, which otherwise would have been sent."""
    stream = task.stream
    if stream is None or not task.is_live:
        return []
    return [part for part in stream.untaken.values() if part.is_lost] + [*islice(stream.unsent(), 1)]


def is_kept(argument: Argument, request: Request) -> bool:
    """Returns whether the tensor of an argument is pinned, if it is stored."""
    blocks = blocks_of((argument.future.tensors[argument.field],))
    return all(block in request.pinned.get(argument.future, ()) for block in blocks)


def postponed_waiters(engine: Engine) -> set[Waiter]:
    """Returns the waiters that continue in the next turn."""
    return {waiter for waiters in engine.turn.postponed.values() for waiter in waiters}
