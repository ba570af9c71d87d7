"""Tensors that are released before their request ends, because nobody can need them any more.

Else a long loop over large tensors would grow without bound. A stored tensor of a request is read by calls that have it as an
argument, by the workflow when it looks at it, and as a part of a result. So it is not needed any more once

1. no `Ref` to its cell is alive: no run of any task can pass it on or look at it;
2. no call or task that has not ended has it as an argument, and no task whose cell is not filled yet as a part of its
   result;
3. no run that is still to come can get hold of it: see below.

For 1 and 2, every `Ref` and every argument carries its cell's `hold`, an object that nobody else refers to, and gives it up
when it ends. So the holders are counted by the interpreter, at no cost, and whoever forgets to give it up only delays the
release.

For 3: a coroutine is run again from its start when a decision turns out otherwise than guessed. As it is deterministic, the new
run holds at that decision the Refs that the first one held there, and up to there asks for nothing that its journal does not
answer: it reads no bytes. Decisions that are taken do not turn out otherwise. So a later run comes to differ at a decision that
is open now, or behind the point where a run stands now. The open ones are those that runs have passed under a guess: what
nobody holds when the first run passes one is noted there, and only what is noted at all of them is released. If all runs were
given up, nobody holds what the next one will, and nothing of that task is released. A task that has returned is not run again;
the check of its determinism comes before, and reads no bytes.

A tensor that was lost may have to be computed again from others. Those which can themselves be computed again need not be kept
for that: recovery goes on to their own inputs. Inputs of the request and results of programs that must not be repeated are kept
to its end. While anything is being restored for a request, nothing of it is released.

Cost: none for requests without stored tensors. Each look goes over what the request keeps; if that is much, only after it has
doubled.
"""

from functools import partial
from sys import getrefcount

from dyorc.engine.leases import Leases
from dyorc.engine.model.calls import Call
from dyorc.engine.model.cells import Cell
from dyorc.engine.model.journal import Segment
from dyorc.engine.model.requests import Request, Task, TaskState
from dyorc.engine.model.walks import dismantle
from dyorc.engine.turn import Turn

_FEW = 16
"""So many cells are looked at whenever something has ended."""
_OWN_REFERENCES = 2
"""To an object that only its cell refers to: the cell's own, and that of the function which counts them."""


class EarlyRelease:
    """Lets tensors go."""

    def __init__(self, turn: Turn, leases: Leases) -> None:
        self._turn = turn
        self._leases = leases

    def ended(self, entry: Call | Task, request: Request) -> None:
        """A call or task does not need its arguments any more, nor the parts of its result."""
        for argument in entry.arguments:
            argument.hold = None
        if isinstance(entry, Task):
            for argument in entry.result:
                argument.hold = None
        self.touch(request)

    def touch(self, request: Request) -> None:
        """Something has ended that may have been the last to need a tensor of a request."""
        if len(request.pinned) <= _FEW or len(request.pinned) > request.release_at:
            self._turn.releasable[request] = None

    def run(self) -> None:
        """Lets go what nobody can need. To be called when all runs wait."""
        for request in self._turn.releasable:
            if not request.restoring and request.root is not None:
                for cell in [cell for cell in request.pinned if self._is_unneeded(cell, request.root)]:
                    self._leases.unpin(request.pinned, cell)
                request.release_at = 2 * len(request.pinned)
        self._turn.releasable.clear()

    @staticmethod
    def _is_unneeded(cell: Cell, root: Task) -> bool:
        if getrefcount(cell.hold) > _OWN_REFERENCES:
            return False
        producer = cell.producer
        if producer is None or producer is root or producer.segment is None:
            return False
        if isinstance(producer, Call) and not producer.callee.options.is_repeatable:
            return False
        task = producer.segment.task
        if task.state is not TaskState.ACTIVE:
            return True
        return bool(task.paths) and all(cell in point.unheld for path in task.paths for point in path.assumed)

    @staticmethod
    def unheld(request: Request) -> set[Cell]:
        """The cells of a request that no run holds now."""
        return {cell for cell in request.pinned if getrefcount(cell.hold) <= _OWN_REFERENCES}

    def dismantle(self, journal: Segment, request: Request) -> int:
        """Cuts a branch off a journal and unpins its tensors. Returns the number of its calls and tasks."""
        if not request.pinned:
            return dismantle(journal)
        return dismantle(journal, partial(self._leases.unpin, request.pinned))
