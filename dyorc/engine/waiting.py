"""Who waits for which value, and whose turn it is."""

from collections import deque
from collections.abc import Callable

from dyorc.engine.actions import Action, FetchValue
from dyorc.engine.cells import Cell, CellState, Waiter
from dyorc.engine.events import ValueFetched
from dyorc.errors import DyOrcError
from dyorc.tensor import TensorRef


class Waiting:
    """The waiting room of all requests.

    Args:
        emit: Takes actions.

    Attributes:
        settled: Cells whose dependents have not been told yet.
        runnable: Those who have all that they waited for.
        fetch_waiters: Those who wait to look at a value that is not in this process.
    """

    def __init__(self, emit: Callable[[Action], None]) -> None:
        self._emit = emit
        self.settled: deque[Cell] = deque()
        self.runnable: deque[Waiter] = deque()
        self.fetch_waiters: dict[Cell, list[Waiter]] = {}
        self._fetching: dict[int, Cell] = {}
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
        if len(waiters) == 1:
            self._num_fetches += 1
            self._fetching[self._num_fetches] = cell
            self._emit(FetchValue(self._num_fetches, cell.tensors))

    def fetched(self, event: ValueFetched) -> None:
        """What somebody wanted to look at has come."""
        cell = self._fetching.pop(event.fetch_id, None)
        if cell is None:
            return
        if event.error is None:
            cell.show(event.arrays)
        else:
            cell.state = CellState.FAILED
            cell.error = event.error
        for waiter in self.fetch_waiters.pop(cell, ()):
            self.tell(waiter)

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
