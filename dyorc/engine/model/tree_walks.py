"""Walks over a request's tree of tasks and calls."""

from collections.abc import Callable, Iterable, Iterator

from dyorc.engine.model.futures import PENDING, Future
from dyorc.engine.model.journal import BranchPoint, Entry, Segment, StreamPart
from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.model.request_tree import Request, Task, TaskState


def request_of(entry: Entry) -> Request:
    """Returns the request that a call or task belongs to."""
    return entry.request if isinstance(entry, Task) else entry.segment.task.request


def is_effect(entry: Entry) -> bool:
    """Returns whether a call or task must run even if its result is not needed."""
    if isinstance(entry, Call):
        return not entry.callee.options.pure
    return not entry.callee.is_pure


def dismantle(journal: Segment, unpin: Callable[[Future], None] | None = None) -> int:
    """Cuts the cycles below a segment that is no longer used, so that its memory is freed now and not by the garbage collector.
    Returns the number of calls and tasks.

    Args:
        unpin: Called with each of their futures, if tensors may be pinned.
    """
    num_entries = 0
    pending = [journal]
    while pending:
        segment = pending.pop()
        num_entries += len(segment.entries)
        for entry in segment.entries:
            future = entry.future
            future.producer = None
            future.dependents = []
            if unpin is not None:
                unpin(future)
            if entry.parts is not None:
                entry.parts.dismantle(unpin)
            if isinstance(entry, Task):
                pending.append(entry.journal)
                entry.forget_runs()
        segment.entries = []
        end = segment.end
        if isinstance(end, BranchPoint):
            pending.extend(end.branches.values())
            end.branches = {}
        elif isinstance(end, StreamPart):
            pending.append(end.following)
        segment.end = None
    return num_entries


def is_unfinished(entry: Entry) -> bool:
    return entry.future.state is PENDING and entry.state not in (TaskState.WITHDRAWN, CallState.WITHDRAWN)


def unfinished(task: Task) -> list[Entry]:
    """Returns the calls and tasks that `task` asked for and that have not ended, on all branches that are not cut off.

    A plain loop over what `Task.entries` yields: this runs at the end of every task.
    """
    entries: list[Entry] = []
    pending = [task.journal]
    while pending:
        segment = pending.pop()
        for entry in segment.entries:
            if entry.future.state is PENDING and is_unfinished(entry):
                entries.append(entry)
        end = segment.end
        if isinstance(end, BranchPoint):
            pending.extend(end.branches.values())
        elif isinstance(end, StreamPart):
            pending.append(end.following)
    return entries


def queued_programs(root: Task) -> Iterator[str]:
    """Yields the programs in whose queues calls of a request wait, in no particular order, some more than once."""
    pending = [root]
    while pending:
        for entry in unfinished(pending.pop()):
            if isinstance(entry, Task):
                pending.append(entry)
            elif entry.state is CallState.QUEUED:
                yield entry.callee.name


def live_effects(task: Task) -> Iterator[Entry]:
    """Yields unfinished calls and tasks with an effect below `task`, also in tasks that have settled."""
    pending = [task] if task.request.num_effects else []
    while pending:
        for entry in pending.pop().entries():
            if isinstance(entry, Task):
                pending.append(entry)
            if is_effect(entry) and is_unfinished(entry):
                yield entry


def closure(futures: Iterable[Future], task: Task) -> Iterator[Entry]:
    """Yields everything unfinished that `futures` depend on, in a task and in those it called.

    What its callers passed to it is left out: nothing of the task can be behind that. Otherwise, in a recursion, the walk would
    go all the way up at each return.
    """
    seen: set[Future] = set()
    pending = list(futures)
    while pending:
        future = pending.pop()
        producer = future.producer
        if future.state is not PENDING or producer is None or future in seen:
            continue
        if producer.segment is not None and producer.segment.task.depth >= task.depth:
            seen.add(future)
            yield producer
            pending.extend(argument.future for argument in producer.arguments)
            for stream in producer.streams:
                if stream.parts.producer is not None:
                    pending.append(stream.parts.producer.future)
