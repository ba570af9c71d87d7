"""Who waits for which value, and whose turn it is."""

from collections import deque
from collections.abc import Callable, Sequence

from dyorc.engine.actions import Action, FetchValue
from dyorc.engine.events import ValueFetched
from dyorc.engine.leases import Leases
from dyorc.engine.model.cells import Cell, CellState, Waiter
from dyorc.engine.model.journal import BranchPoint, Part
from dyorc.engine.model.requests import Task, TaskState
from dyorc.errors import DyOrcError, ReplicaLostError
from dyorc.tensor import BlockId, TensorRef, blocks_of


class Waiting:
    """The waiting room of all requests.

    Args:
        is_missing: Whether a cell that somebody wants to look at has to be restored first; then `restored` will be called.
        max_attempts: How often a value is asked for that seems to be there and is not.
        emit: Takes actions.

    Attributes:
        settled: Cells whose dependents have not been told yet.
        runnable: Those who have all that they waited for.
        fetch_waiters: Those who wait to look at a value that is not in this process.
        fetching: What is being brought in, and the blocks that it is read from.
    """

    def __init__(
        self, leases: Leases, is_missing: Callable[[Waiter, Cell], bool], max_attempts: int, emit: Callable[[Action], None]
    ) -> None:
        self._leases = leases
        self._is_missing = is_missing
        self._max_attempts = max_attempts
        self._emit = emit
        self.settled: deque[Cell] = deque()
        self.runnable: deque[Waiter] = deque()
        self.fetch_waiters: dict[Cell, list[Waiter]] = {}
        self.fetching: dict[int, tuple[Cell, Sequence[BlockId]]] = {}
        self._num_losses: dict[Cell, int] = {}
        self._num_fetches = 0

    def wait(self, waiter: Waiter, cell: Cell) -> None:
        """Somebody needs a cell to settle."""
        cell.dependents.append(waiter)
        waiter.num_awaited += 1

    def fetch(self, waiter: Waiter, cell: Cell) -> None:
        """Somebody needs to look at a cell that is ready."""
        waiter.num_awaited += 1
        waiters = self.fetch_waiters.setdefault(cell, [])
        waiters.append(waiter)
        if len(waiters) == 1 and not self._is_missing(waiter, cell):
            self._ask_for(cell)

    def _ask_for(self, cell: Cell) -> None:
        self._num_fetches += 1
        blocks = blocks_of(cell.tensors)
        self._leases.hold(blocks)
        self.fetching[self._num_fetches] = (cell, blocks)
        self._emit(FetchValue(self._num_fetches, cell.tensors))

    def fetched(self, event: ValueFetched) -> None:
        """What somebody wanted to look at has come, or was lost on the way."""
        cell, blocks = self.fetching.pop(event.fetch_id, (None, ()))
        if cell is None:
            return
        self._leases.drop(blocks)
        if event.lost and event.error is None:
            self._fetch_again(cell)
        else:
            if event.error is None:
                cell.show(event.arrays)
            self._end_fetch(cell, event.error)

    def _fetch_again(self, cell: Cell) -> None:
        waiter = next((waiter for waiter in self.fetch_waiters.get(cell, ()) if _is_live(waiter)), None)
        num_losses = self._num_losses[cell] = self._num_losses.get(cell, 0) + 1
        if waiter is None:
            self.forget(cell)
        elif self._is_missing(waiter, cell):
            return
        elif num_losses >= self._max_attempts:
            self._end_fetch(cell, ReplicaLostError(f"the {cell!r} could not be read in {num_losses} attempts"))
        else:
            self._ask_for(cell)

    def restored(self, cell: Cell, error: DyOrcError | None) -> None:
        """What somebody wanted to look at is there again, or will not be."""
        if error is not None:
            self._end_fetch(cell, error)
        elif cell.is_at_hand:
            self._end_fetch(cell, None)
        else:
            self._ask_for(cell)

    def _end_fetch(self, cell: Cell, error: DyOrcError | None) -> None:
        if error is not None:
            cell.state = CellState.FAILED
            cell.error = error
        self._num_losses.pop(cell, None)
        for waiter in self.fetch_waiters.pop(cell, ()):
            self.tell(waiter)

    def is_awaited(self, cell: Cell) -> bool:
        """Whether anybody still wants to look at a cell."""
        return any(_is_live(waiter) for waiter in self.fetch_waiters.get(cell, ()))

    def forget(self, cell: Cell) -> None:
        """Nobody wants to look at a cell any more."""
        self.fetch_waiters.pop(cell, None)
        self._num_losses.pop(cell, None)

    def tell(self, waiter: Waiter) -> None:
        """One of the values that somebody waits for is there."""
        waiter.num_awaited -= 1
        if not waiter.num_awaited:
            self.runnable.append(waiter)

    def settle(self, cell: Cell, tensors: tuple[TensorRef, ...]) -> None:
        """A value is there."""
        cell.fill(tensors)
        self.settled.append(cell)

    def fail(self, cell: Cell, error: DyOrcError) -> None:
        """There will be no value."""
        cell.state = CellState.FAILED
        cell.error = error
        self.settled.append(cell)


def _is_live(waiter: Waiter) -> bool:
    """Whether somebody is still interested in what it waits for."""
    if isinstance(waiter, Task):
        return waiter.is_live
    if isinstance(waiter, Part):
        return True
    if isinstance(waiter, BranchPoint):
        return not waiter.is_dropped and waiter.segment.task.state is TaskState.ACTIVE
    return not waiter.is_closed
