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

A resident has a hold of its own, so that what stands beside it does not keep it: a loop may keep all its tokens,
and only its last state. The tensors beside it are kept as long as it is.

A lost tensor may have to be computed again from others. Tensors that can be recomputed need not be kept for that: recovery
continues with their own inputs. Inputs of the request and results of programs that must not be repeated are kept to
its end. While anything is being restored for a request, none of its tensors is released, except parts that a call has just read:
when it runs again, these are made again one after another. Of its residents, those which no restoration reads are released, so
that a chain that is made again needs no more room than it did at first.

Cost: none for requests without stored tensors. Each search visits every pinned future of the request; if there are many, only
after they have doubled. Those with residents are counted and searched for themselves.
"""

from functools import partial
from math import inf
from sys import getrefcount

from dyorc.engine.block_leases import BlockLeases
from dyorc.engine.model.futures import Future
from dyorc.engine.model.journal import Segment
from dyorc.engine.model.part_list import Cell, PartList, StreamArgument
from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.model.request_tree import Request, Task, TaskState
from dyorc.engine.model.tree_walks import dismantle
from dyorc.engine.turn import Turn

_OWN_REFERENCES = 2
"""To an object that only its owner refers to: by the owner, and by the function that counts."""
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
        if _is_due(len(request.pinned), request.release_at) or _is_due(len(request.keeping), request.release_residents_at):
            self._turn.releasable[request] = None

    def run(self) -> None:
        """Unpins what cannot be needed again. Call it when all runs wait.

        Requests whose runs go on in the next turn are left out: the tensors they will use have no holder yet.
        """
        for request in self._turn.releasable:
            if request.root is None or request in self._turn.postponed:
                continue
            if request.keeping:
                self._release_residents(request, request.root)
            if not request.restoring and _is_due(len(request.pinned), request.release_at):
                keeping, root = request.keeping, request.root
                for future in [each for each in request.pinned if each not in keeping and self._is_unneeded(each, root)]:
                    self._leases.unpin(request.pinned, future)
                request.release_at = 2 * len(request.pinned)
        self._turn.releasable.clear()

    def release_passed(self) -> None:
        """Unpins parts that running calls have read and nothing else needs, without a search, so that long streams need little
        room. Call it when all runs wait.
        """
        for cell, request in self._turn.passed.items():
            if cell not in request.pinned or request.root is None or request in self._turn.postponed:
                continue
            if self._is_unneeded(cell, request.root) and not (request.restoring and _is_restored_from(cell, request)):
                self._leases.unpin(request.pinned, cell)
        self._turn.passed.clear()

    def release_ahead(self, request: Request, parts: PartList, first: int) -> None:
        """Unpins the parts of a stream from one on that only running calls still read, because those before are made again.

        They will come again as well, and might take the room that the first ones need.
        """
        if request.root is None or any(isinstance(argument.taker, Task) for argument in parts.taken_by):
            return
        first_held = parts.first_held
        for cell in parts.cells[first:]:
            if cell not in request.pinned or cell.index >= first_held or getrefcount(cell.hold) > _OWN_REFERENCES:
                continue
            if self._is_out_of_reach(cell, request.root, cell) and not _is_restored_from(cell, request):
                self._leases.unpin(request.pinned, cell)

    def _release_residents(self, request: Request, root: Task) -> None:
        needed = _restored_from(request) if request.restoring else set[Future]()
        for future in list(request.keeping):
            if future in needed or future.resident_holds is None:
                continue
            is_keeping = False
            for field in future.resident_holds:
                block = future.tensors[field].holder, future.tensors[field].block
                if block in request.pinned.get(future, ()):
                    if self._is_unneeded(future, root, field):
                        self._leases.unpin_block(request.pinned, future, block)
                    else:
                        is_keeping = True
            if not is_keeping:
                del request.keeping[future]
        request.release_residents_at = 2 * len(request.keeping)

    def _is_unneeded(self, future: Future, root: Task, field: int | None = None) -> bool:
        """Returns whether nothing can need the tensors of a future again, or one resident among them."""
        if _is_held(future) if field is None else _is_resident_held(future, field):
            return False
        return self._is_out_of_reach(future, root, future if field is None else (future, field))

    @staticmethod
    def _is_out_of_reach(future: Future, root: Task, unit: Future | tuple[Future, int]) -> bool:
        """Returns whether no later run can come to a future, or resident, that no present one holds, and it can be made again."""
        producer = future.producer
        if producer is None or producer is root or producer.segment is None:
            return False
        if isinstance(producer, Call) and not producer.callee.options.is_repeatable:
            return False
        task = producer.segment.task
        if task.state is not TaskState.ACTIVE:
            return True
        return _is_behind(task, unit)

    @staticmethod
    def unread(request: Request) -> list[Call | Task]:
        """Returns the calls and tasks of a request that yield what nothing can read again.

        Only for certain where no run of their task has passed an open decision: another run could start before it.

        Cost: looks only at parts that lost a reader since the last time, and at those on guesses.
        """
        unread: list[Call | Task] = []
        for parts in list(request.maybe_unread):
            entry = parts.producer
            segment = None if entry is None else entry.segment
            if entry is None or segment is None or parts.is_unbounded or parts.taken_by or parts.first_held < inf:
                request.maybe_unread.pop(parts, None)  # until another reader ends
                continue
            task = segment.task
            if not segment.is_certain:
                continue
            if task.state is not TaskState.ACTIVE or (task.paths and not any(path.assumed for path in task.paths)):
                unread.append(entry)
        return sorted(unread, key=request.yielding.__getitem__)

    @staticmethod
    def unheld(request: Request) -> set[Future | tuple[Future, int]]:
        """Returns the futures of a request that no run holds now; residents by future and place."""
        unheld: set[Future | tuple[Future, int]] = {future for future in request.pinned if not _is_held(future)}
        for future in request.keeping:
            for field in future.resident_holds or ():
                if not _is_resident_held(future, field):
                    unheld.add((future, field))
        return unheld

    def dismantle(self, journal: Segment, request: Request) -> int:
        """Cuts a branch off a journal and unpins its tensors. Returns the number of its calls and tasks."""
        if not request.pinned:
            return dismantle(journal)
        return dismantle(journal, partial(self._leases.unpin, request.pinned))


def _is_due(number: int, at: int) -> bool:
    """Returns whether to search among so many futures."""
    return number <= _FEW or number > at


def _restored_from(request: Request) -> set[Future]:
    """Returns what the restorations of a request make and read."""
    futures = set(request.restoring)
    for restoration in request.restoring.values():
        if restoration.call is not None:
            futures.update(argument.future for argument in restoration.call.arguments)
    return futures


def _is_held(future: Future) -> bool:
    """Returns whether anything may still need the tensors of a future, residents apart. A part is needed by whatever has yet to
    read it in its stream, too."""
    if getrefcount(future.hold) > _OWN_REFERENCES:
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


def _is_restored_from(cell: Cell, request: Request) -> bool:
    """Returns whether a restoration may need a part: of calls that have ended, nothing holds the arguments."""
    for restoration in request.restoring.values():
        call = restoration.call
        if isinstance(restoration.future.producer, Task) or cell in restoration.cells:
            return True
        if call is not None and any(argument.future is cell for argument in call.arguments):
            return True
    return False


def _is_behind(task: Task, unit: Future | tuple[Future, int]) -> bool:
    """Returns whether no run of a task that starts again can come to a future, or resident, that its present runs do not hold."""
    return bool(task.paths) and all(unit in point.unheld for path in task.paths for point in path.assumed)


def _is_resident_held(future: Future, field: int) -> bool:
    holds = future.resident_holds
    return holds is not None and getrefcount(holds[field]) > _OWN_REFERENCES
