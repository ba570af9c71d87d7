"""Where a program of this process reads its inputs: in place.

Small ones are arrays, of which the executor makes a copy. Large ones lie in an arena. A program may write to its inputs, and
others may need them unchanged. So each program has views of its own, of which the kernel copies the pages that it writes
(`ArenaView.writable`), and drops them when the batch has ended.
"""

from collections.abc import Sequence

from dyorc.answering.tensor_exchange import Tensors, has_stored, inline_array
from dyorc.core.tensor import TensorRef
from dyorc.transport.codec import Rows
from dyorc.transport.inbox import Inbox
from dyorc.transport.routes import Routes


class ProgramInputs:
    """Of one program. Batches are read on the event loop, and run one after the other.

    Args:
        tensors: Knows where they are.
    """

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors
        self._routes: Routes | None = None

    def read(self, operands: Sequence[tuple[TensorRef, ...]], is_any_stored: bool) -> tuple[list[Rows], Inbox | None]:
        """Returns a batch's inputs, column by column, and by what those are read that lie in an arena, if any do.

        Raises:
            InputsLostError: If a holder is gone or does not have a tensor any more.
        """
        inbox = self._inbox() if is_any_stored else None
        return [self._column(column, inbox) for column in zip(*operands, strict=True)], inbox

    def _inbox(self) -> Inbox:
        if self._routes is None:
            self._routes = self._tensors.lend_routes()
        return Inbox(self._routes)

    def _column(self, column: tuple[TensorRef, ...], inbox: Inbox | None) -> Rows:
        if inbox is None or not has_stored(column):
            return [inline_array(tensor) for tensor in column]
        headers, frames, holders = self._tensors.pack([(tensor,) for tensor in column])
        return inbox.read(headers, frames, holders)[0]

    def close(self) -> None:
        """Drops the views."""
        if self._routes is not None:
            self._tensors.take_back(self._routes)
            self._routes = None
