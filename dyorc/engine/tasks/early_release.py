"""Releases tensors before their request ends, once they cannot be needed again.

Otherwise, a long loop over large tensors would grow without bound. A stored tensor of a request is read by calls that have it
as an argument, by the workflow when it reads the value, and as part of a result. So it is no longer needed once

1. no `Ref` to its future is alive: no run of any task can pass it on or read it;
2. no unfinished call or task has it as an argument, and no task with a pending future has it as part of its result;
3. no future run can reach it: see below.

For 1 and 2, every `Ref` and every argument carries its future's `hold`, an object without other references, and drops it when it
ends. So the interpreter counts the holders at no cost, and a holder that forgets to drop it only delays the release.

For 3: a coroutine is run again from its start when a decision turns out otherwise than guessed. As it is deterministic, the new
run holds at that decision the Refs that the first one held there, and until then asks only for what its journal answers: it
reads no bytes. Decisions that were taken stay as they are. So a later run can differ only at a decision that is open now, or
behind the point where a run stands now. Runs have passed the open decisions under a guess: futures that no run holds when the
first run passes one are recorded there, and only futures recorded at all of them are released. If all runs were given up, it is
unknown what the next one will hold, and nothing of that task is released. A task that has returned is not run again; its
determinism is checked before, without reading bytes.

A part of a stream is needed, besides, as long as it may be read: by a `Stream` or a call that has yet to run from its start, by a
loop from where it stands, by a running call from the first part that it has not read. The coroutine of a task that takes a stream
whole begins with a `Stream`; for runs that start again, 3 holds.

A lost tensor may have to be computed again from others. Tensors that can be recomputed need not be kept for that: recovery
continues with their own inputs. Inputs of the request and results of programs that must not be repeated are kept to
its end. While anything is being restored for a request, none of its tensors is released.

Cost: none for requests without stored tensors. Each search visits every pinned future of the request; if there are many, only
after they have doubled.
"""

from functools import partial
from math import inf
from sys import getrefcount

from dyorc.engine.block_leases import BlockLeases
from dyorc.engine.model.futures import Future
from dyorc.engine.model.journal import Segment
from dyorc.engine.model.part_list import OWN_REFERENCES, Cell, StreamArgument
from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.model.request_tree import Request, Task, TaskState
from dyorc.engine.model.tree_walks import dismantle
from dyorc.engine.turn import Turn

_FEW = 16
"""Up to this many futures are searched whenever something has ended."""


class EarlyRelease:
    """Releases unneeded tensors."""

    def __init__(self, turn: Turn, leases: BlockLeases) -> None:
        self._turn = turn
        self._leases = leases

    def drop_arguments(self, entry: Call | Task, request: Request) -> None:
        """Drops the arguments of a call or task that has ended, and the parts of its result."""
        for argument in entry.arguments:
            argument.hold = None
        for stream in entry.streams:
            stream.drop()
        if isinstance(entry, Task):
            for argument in entry.result:
                argument.hold = None
        self.touch(request)

    def touch(self, request: Request) -> None:
        """Plans a search for unneeded tensors of a request, after an end of something that may have been the last to need one."""
        if len(request.pinned) <= _FEW or len(request.pinned) > request.release_at:
            self._turn.releasable[request] = None

    def run(self) -> None:
        """Unpins what cannot be needed again. Call it when all runs wait.

        Requests whose runs go on in the next turn are left out: the tensors they will use have no holder yet.
        """
        for request in self._turn.releasable:
            if not request.restoring and request.root is not None and request not in self._turn.postponed:
                for future in [future for future in request.pinned if self._is_unneeded(future, request.root)]:
                    self._leases.unpin(request.pinned, future)
                request.release_at = 2 * len(request.pinned)
        self._turn.releasable.clear()

    @staticmethod
    def _is_unneeded(future: Future, root: Task) -> bool:
        if _is_held(future):
            return False
        producer = future.producer
        if producer is None or producer is root or producer.segment is None:
            return False
        if isinstance(producer, Call) and not producer.callee.options.is_repeatable:
            return False
        task = producer.segment.task
        if task.state is not TaskState.ACTIVE:
            return True
        return _is_behind(task, future)

    @staticmethod
    def unread(request: Request) -> list[Call | Task]:
        """Returns the calls and tasks of a request that yield what nothing can read again.

        Only for certain where no run of their task has passed an open decision: another run could start before it.
        """
        unread: list[Call | Task] = []
        for entry in request.yielding:
            parts, segment = entry.parts, entry.segment
            if parts is None or segment is None or parts.is_unbounded or parts.taken_by or parts.first_held < inf:
                continue
            task = segment.task
            if segment.is_certain and task.paths and not any(path.assumed for path in task.paths):
                unread.append(entry)
        return unread

    @staticmethod
    def unheld(request: Request) -> set[Future]:
        """Returns the futures of a request that no run holds now."""
        return {future for future in request.pinned if not _is_held(future)}

    def dismantle(self, journal: Segment, request: Request) -> int:
        """Cuts a branch off a journal and unpins its tensors. Returns the number of its calls and tasks."""
        if not request.pinned:
            return dismantle(journal)
        return dismantle(journal, partial(self._leases.unpin, request.pinned))


def _is_held(future: Future) -> bool:
    """Returns whether anything may still need a future; a part is needed by whatever has yet to read it in its stream, too."""
    if getrefcount(future.hold) > OWN_REFERENCES:
        return True
    if not isinstance(future, Cell) or future.producer is None:
        return False
    parts = future.producer.parts
    if parts is None:
        return False
    return parts.first_held <= future.index or any(_may_read(argument, future) for argument in parts.taken_by)


def _may_read(argument: StreamArgument, cell: Cell) -> bool:
    """Returns whether a call or task that takes a stream whole may still read a part of it.

    A call that has to run again may do so even if not: the part is made again then, as a lost one.
    """
    taker = argument.taker
    if isinstance(taker, Task):
        return not _is_behind(taker, cell)
    if taker.state is not CallState.RUNNING or not taker.feeds:
        return True
    return any(feed.num_taken <= cell.index for feed in taker.feeds if feed.parts is argument.parts)


def _is_behind(task: Task, future: Future) -> bool:
    """Returns whether no run of a task that starts again can come to a future that its present runs do not hold."""
    return bool(task.paths) and all(future in point.unheld for path in task.paths for point in path.assumed)
