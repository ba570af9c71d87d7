"""Restorations: cells whose tensors were lost and are being computed again (`dyorc.engine.tasks.recovery`)."""

from typing import TYPE_CHECKING, TypeAlias

from dyorc.engine.model.calls import Call
from dyorc.engine.model.cells import Future
from dyorc.engine.model.journal import StreamPart
from dyorc.errors import DyOrcError

if TYPE_CHECKING:
    from dyorc.engine.model.requests import Request


class Restoration:
    """A cell whose tensors are being made again.

    Attributes:
        call: What runs for it, if the cell is a call's.
        num_awaited: Restorations that it waits for, if the cell is a task's.
        waiters: What needs the tensors: calls, other restorations, the cell itself if a workflow wants to read it, a part of the
            answer, and the request if it is its answer.
        is_done: Whether the tensors are there and the waiters are still to be told.
        error: Why there will be none, with the waiters still to be told.
    """

    __slots__ = ("call", "cell", "error", "is_done", "num_awaited", "request", "waiters")

    def __init__(self, request: "Request", cell: Future) -> None:
        self.request = request
        self.cell = cell
        self.call: Call | None = None
        self.num_awaited = 0
        self.waiters: list[RestorationWaiter] = []
        self.is_done = False
        self.error: DyOrcError | None = None

    def __repr__(self) -> str:
        return f"restoration of the {self.cell!r}"


Needer: TypeAlias = "Call | Future | StreamPart | Request"
"""What needs lost tensors; a cell stands for workflows that read its value, a request for its answer."""

RestorationWaiter: TypeAlias = "Needer | Restoration"
