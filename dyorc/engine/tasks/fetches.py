"""Fetches values that a workflow wants to read and that are not in this process."""

from collections.abc import Sequence

from dyorc.engine.actions import FetchValue
from dyorc.engine.events import ValueFetched
from dyorc.engine.leases import BlockLeases
from dyorc.engine.model.cells import Future, FutureState, Waiter
from dyorc.engine.model.journal import BranchPoint, StreamPart
from dyorc.engine.model.requests import Task, TaskState
from dyorc.engine.tasks.needs import TensorNeeds
from dyorc.engine.turn import Turn
from dyorc.errors import DyOrcError, ReplicaLostError
from dyorc.tensor import BlockId, blocks_of


class Fetches:
    """Fetches values.

    Args:
        max_attempts: How many times a value is requested that seems to be there and is not.

    Attributes:
        waiters: Who waits to read a cell.
        in_progress: Cells being fetched, with the blocks they are read from.
    """

    def __init__(self, turn: Turn, leases: BlockLeases, needs: TensorNeeds, max_attempts: int) -> None:
        self._turn = turn
        self._leases = leases
        self._needs = needs
        self._max_attempts = max_attempts
        self.waiters: dict[Future, list[Waiter]] = {}
        self.in_progress: dict[int, tuple[Future, Sequence[BlockId]]] = {}
        self._num_losses: dict[Future, int] = {}
        self._num_fetches = 0

    def fetch(self, waiter: Waiter, cell: Future) -> None:
        """Brings in the value of a ready cell for a waiter."""
        waiter.num_awaited += 1
        waiters = self.waiters.setdefault(cell, [])
        waiters.append(waiter)
        if len(waiters) == 1 and not self._is_missing(waiter, cell):
            self._ask_for(cell)

    def _is_missing(self, waiter: Waiter, cell: Future) -> bool:
        """Returns whether a cell has to be restored first. If so, its restoration begins, and `restored` follows."""
        task = waiter if isinstance(waiter, Task) else waiter.segment.task
        return self._needs.await_cell(task.request, cell, cell)

    def _ask_for(self, cell: Future) -> None:
        self._num_fetches += 1
        blocks = blocks_of(cell.tensors)
        self._leases.acquire(blocks)
        self.in_progress[self._num_fetches] = (cell, blocks)
        self._turn.actions.append(FetchValue(self._num_fetches, cell.tensors))

    def fetched(self, event: ValueFetched) -> None:
        """Shows a fetched value to its waiters; fetches it again if it was lost on the way."""
        cell, blocks = self.in_progress.pop(event.fetch_id, (None, ()))
        if cell is None:
            return
        self._leases.release(blocks)
        if event.lost and event.error is None:
            self._fetch_again(cell)
        else:
            if event.error is None:
                cell.show(event.arrays)
            self._end(cell, event.error)

    def _fetch_again(self, cell: Future) -> None:
        waiter = next((waiter for waiter in self.waiters.get(cell, ()) if _is_live(waiter)), None)
        num_losses = self._num_losses[cell] = self._num_losses.get(cell, 0) + 1
        if waiter is None:
            self.forget(cell)
        elif self._is_missing(waiter, cell):
            return
        elif num_losses >= self._max_attempts:
            self._end(cell, ReplicaLostError(f"the {cell!r} could not be read in {num_losses} attempts"))
        else:
            self._ask_for(cell)

    def restored(self, cell: Future, error: DyOrcError | None) -> None:
        """Continues with a wanted value that has been restored, or fails its waiters."""
        if error is not None:
            self._end(cell, error)
        elif cell.is_at_hand:
            self._end(cell, None)
        else:
            self._ask_for(cell)

    def _end(self, cell: Future, error: DyOrcError | None) -> None:
        if error is not None:
            cell.state = FutureState.FAILED
            cell.error = error
        self._num_losses.pop(cell, None)
        for waiter in self.waiters.pop(cell, ()):
            self._turn.tell(waiter)

    def is_awaited(self, cell: Future) -> bool:
        """Returns whether anybody still wants to read a cell."""
        return any(_is_live(waiter) for waiter in self.waiters.get(cell, ()))

    def forget(self, cell: Future) -> None:
        """Drops a cell that nobody wants to read any more."""
        self.waiters.pop(cell, None)
        self._num_losses.pop(cell, None)


def _is_live(waiter: Waiter) -> bool:
    """Returns whether a waiter still needs what it waits for."""
    if isinstance(waiter, Task):
        return waiter.is_live
    if isinstance(waiter, StreamPart):
        return True
    if isinstance(waiter, BranchPoint):
        return not waiter.is_dropped and waiter.segment.task.state is TaskState.ACTIVE
    return not waiter.is_closed
