"""Tensors that have to be read: lost ones are restored first, and values that a workflow reads are brought into this process."""

from collections.abc import Iterable, Sequence

from dyorc.core.tensor import BlockId, blocks_of
from dyorc.engine.actions import FetchValue
from dyorc.engine.block_leases import BlockLeases
from dyorc.engine.events import ValueFetched
from dyorc.engine.model.futures import FAILED, Argument, Future, Waiter
from dyorc.engine.model.journal import BranchPoint, StreamPart
from dyorc.engine.model.part_list import Cell
from dyorc.engine.model.program_call import Call, Feed
from dyorc.engine.model.request_tree import Request, Restoration, RestorationWaiter, Task, TaskState
from dyorc.engine.turn import Turn
from dyorc.errors import DyOrcError, ReplicaLostError


class TensorNeeds:
    """Requests the restoration of lost tensors before they are read: one per future, however many wait for it."""

    def __init__(self, turn: Turn, leases: BlockLeases) -> None:
        self._turn = turn
        self._leases = leases

    def await_inputs(self, call: Call) -> bool:
        """Makes a call wait for its lost inputs, and pins the others. Returns whether any is lost."""
        return self._await_arguments(call.segment.task.request, call.arguments, call)

    def await_part(self, part: StreamPart) -> bool:
        """Makes a part of an answer wait for its lost tensors, and pins the others. Returns whether any is lost."""
        return self._await_arguments(part.segment.task.request, part.arguments, part)

    def await_result(self, restoration: Restoration, result: Iterable[Argument]) -> bool:
        """Makes the restoration of a task's future wait for lost tensors of the task's result. Returns whether any is lost."""
        return self._await_arguments(restoration.request, result, restoration)

    def await_future(self, request: Request, future: Future, waiter: Future | Request) -> bool:
        """Requests the restoration of a future, if it is lost, before a waiter reads it. Returns whether it is lost."""
        if self._leases.are_there(blocks_of(future.readable)):
            return False
        self._need(request, future, waiter)
        return True

    def await_part_to_feed(self, feed: Feed, cell: Cell) -> bool:
        """Makes a running call wait for the next part of one of its streams, if that was lost. Returns whether it was."""
        request = feed.call.segment.task.request
        if self._leases.are_there(blocks_of(cell.tensors)):
            self._leases.pin(request.pinned, cell)
            return False
        feed.num_awaited += 1
        self._need(request, cell, feed)
        return True

    def _await_arguments(self, request: Request, arguments: Iterable[Argument], waiter: Call | StreamPart | Restoration) -> bool:
        missing: dict[Future, None] = {}
        for argument in arguments:
            future = argument.future
            blocks = blocks_of((future.tensors[argument.field],))
            if self._leases.are_there(blocks):
                if blocks:
                    self._leases.pin(request.pinned, future)
                    if future.resident_holds is not None:
                        request.keeping[future] = None
            else:
                missing[future] = None
        for future in missing:
            waiter.num_awaited += 1
            self._need(request, future, waiter)
        return bool(missing)

    def _need(self, request: Request, future: Future, waiter: RestorationWaiter) -> None:
        cell = future if isinstance(future, Cell) and isinstance(future.producer, Call) else None
        if cell is not None and cell.producer is not None:
            future = cell.producer.future  # the lost parts of a call are made again together
        restoration = request.restoring.get(future)
        if restoration is None:
            restoration = request.restoring[future] = Restoration(request, future)
            self._turn.restorations.append(restoration)
        restoration.waiters.append(waiter)
        if cell is not None and cell not in restoration.cells:
            if isinstance(waiter, Feed):
                restoration.feeds[waiter] = None
            else:
                restoration.cells[cell] = None
            if not restoration.is_done:
                self._turn.restorations.append(restoration)  # it may have to go further


class Fetches:
    """Fetches values that workflows read and that are not in this process.

    Args:
        max_attempts: How many times a value is requested that seems to be there and is not.

    Attributes:
        waiters: What waits to read a future.
        in_progress: Futures being fetched, with the blocks they are read from.
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

    def fetch(self, waiter: Waiter, future: Future) -> None:
        """Brings in the value of a ready future for a waiter."""
        waiter.num_awaited += 1
        waiters = self.waiters.setdefault(future, [])
        waiters.append(waiter)
        if len(waiters) == 1 and not self._is_missing(waiter, future):
            self._ask_for(future)

    def _is_missing(self, waiter: Waiter, future: Future) -> bool:
        """Returns whether a future has to be restored first. If so, its restoration begins, and `restored` follows."""
        task = waiter if isinstance(waiter, Task) else waiter.segment.task
        return self._needs.await_future(task.request, future, future)

    def _ask_for(self, future: Future) -> None:
        self._num_fetches += 1
        tensors = future.readable
        blocks = blocks_of(tensors)
        self._leases.acquire(blocks)
        self.in_progress[self._num_fetches] = (future, blocks)
        self._turn.actions.append(FetchValue(self._num_fetches, tensors))

    def value_fetched(self, event: ValueFetched) -> None:
        """Shows a fetched value to its waiters; fetches it again if it was lost on the way."""
        future, blocks = self.in_progress.pop(event.fetch_id, (None, ()))
        if future is None:
            return
        self._leases.release(blocks)
        if event.lost and event.error is None:
            self._fetch_again(future)
        else:
            if event.error is None:
                future.set_arrays(event.arrays)
            self._end(future, event.error)

    def _fetch_again(self, future: Future) -> None:
        waiter = next((waiter for waiter in self.waiters.get(future, ()) if _is_live(waiter)), None)
        num_losses = self._num_losses[future] = self._num_losses.get(future, 0) + 1
        if waiter is None:
            self.forget(future)
        elif self._is_missing(waiter, future):
            return
        elif num_losses >= self._max_attempts:
            self._end(future, ReplicaLostError(f"the {future!r} could not be read in {num_losses} attempts"))
        else:
            self._ask_for(future)

    def future_restored(self, future: Future, error: DyOrcError | None) -> None:
        """Continues with a wanted value that has been restored, or fails its waiters."""
        if error is not None:
            self._end(future, error)
        elif future.is_at_hand:
            self._end(future, None)
        elif not isinstance(future, Cell) or not self._is_lost_again(future):
            self._ask_for(future)

    def _is_lost_again(self, cell: Cell) -> bool:
        """Returns whether a part that was just restored was lost meanwhile. If so, it is restored once more, if it is needed."""
        waiter = next((waiter for waiter in self.waiters.get(cell, ()) if _is_live(waiter)), None)
        if waiter is None:
            self.forget(cell)
            return True
        return self._is_missing(waiter, cell)

    def _end(self, future: Future, error: DyOrcError | None) -> None:
        if error is not None:
            future.state = FAILED
            future.error = error
        self._num_losses.pop(future, None)
        for waiter in self.waiters.pop(future, ()):
            self._turn.notify(waiter)

    def is_awaited(self, future: Future) -> bool:
        """Returns whether a workflow still needs to read a future."""
        return any(_is_live(waiter) for waiter in self.waiters.get(future, ()))

    def forget(self, future: Future) -> None:
        """Drops a future that no workflow needs to read any longer."""
        self.waiters.pop(future, None)
        self._num_losses.pop(future, None)


def _is_live(waiter: Waiter) -> bool:
    """Returns whether a waiter still needs what it waits for."""
    if isinstance(waiter, Task):
        return waiter.is_live
    if isinstance(waiter, StreamPart | Feed):
        return True
    if isinstance(waiter, BranchPoint):
        return not waiter.is_dropped and waiter.segment.task.state is TaskState.ACTIVE
    return not waiter.is_closed
