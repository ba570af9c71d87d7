"""Finds out which lost futures somebody needs, and asks for their restoration."""

from collections.abc import Iterable

from dyorc.core.tensor import blocks_of
from dyorc.engine.block_leases import BlockLeases
from dyorc.engine.model.calls import Call
from dyorc.engine.model.futures import Argument, Future
from dyorc.engine.model.journal import StreamPart
from dyorc.engine.model.requests import Request, Restoration, RestorationWaiter
from dyorc.engine.turn import Turn


class TensorNeeds:
    """Has lost tensors restored for those who need to read them: one restoration per future, however many wait for it."""

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
        """Has a future restored, if it is lost, before a waiter reads it. Returns whether it is lost."""
        if self._leases.are_there(blocks_of(future.tensors)):
            return False
        self._need(request, future, waiter)
        return True

    def _await_arguments(self, request: Request, arguments: Iterable[Argument], waiter: Call | StreamPart | Restoration) -> bool:
        missing: dict[Future, None] = {}
        for argument in arguments:
            future = argument.future
            if self._leases.are_there(blocks_of((future.tensors[argument.field],))):
                self._leases.pin(request.pinned, future)
            else:
                missing[future] = None
        for future in missing:
            waiter.num_awaited += 1
            self._need(request, future, waiter)
        return bool(missing)

    def _need(self, request: Request, future: Future, waiter: RestorationWaiter) -> None:
        restoration = request.restoring.get(future)
        if restoration is None:
            restoration = request.restoring[future] = Restoration(request, future)
            self._turn.restorations.append(restoration)
        restoration.waiters.append(waiter)
