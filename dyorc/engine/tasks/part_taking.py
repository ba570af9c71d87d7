"""The parts of calls of programs that yield: they go into their places, and readers go on.

yielded ── CallPart ──> in its cell: readers go on ──> read further than ever: the replica may send more
call done ──> the next cell is the end           call failed ──> the next cell fails; the parts before it stay valid
"""

from dyorc.core.tensor import blocks_of
from dyorc.engine.block_leases import BlockLeases
from dyorc.engine.model.futures import FutureState
from dyorc.engine.model.part_list import Cell, PartList
from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.turn import CallPart, Turn
from dyorc.errors import DyOrcError, StreamDivergedError


def diverged(call: Call, cell: Cell) -> StreamDivergedError:
    """Returns the error of a call that was run again and yielded another part than before."""
    return StreamDivergedError(
        f"program {call.callee.name!r} was started again, because its replica was lost, and yielded another part {cell.index} "
        f"than before; it has to yield the same for the same inputs, or to be declared pure=False"
    )


class PartTaker:
    """Fills the places of parts."""

    def __init__(self, turn: Turn, leases: BlockLeases) -> None:
        self._turn = turn
        self._leases = leases

    def take(self, came: CallPart) -> StreamDivergedError | None:
        """Takes a part that a call has yielded. Returns the error of a call that started again and yields something else."""
        call, parts = came.call, came.call.parts
        blocks = blocks_of(came.tensors)
        if parts is None or call.state in (CallState.WITHDRAWN, CallState.SETTLED) or came.index > parts.num_parts:
            self._leases.discard(blocks)
            return None
        if came.index < parts.num_parts:
            return self._compare(came, parts.cells[came.index])
        cell = parts.last
        parts.add_cell(call)
        cell.digest = came.digest
        if blocks:
            request = call.segment.task.request
            request.has_stored = True
            self._leases.pin_new(request.pinned, cell, blocks)
        self._turn.settle(cell, came.tensors)
        return None

    def _compare(self, came: CallPart, cell: Cell) -> StreamDivergedError | None:
        """Takes a part that came before. It is kept only where the first one was lost."""
        call, blocks = came.call, blocks_of(came.tensors)
        request = call.segment.task.request
        if came.digest != cell.digest:
            self._leases.discard(blocks)
            return diverged(call, cell)
        if cell in request.pinned and not self._leases.are_there(blocks_of(cell.tensors)):
            self._leases.pin_new(request.pinned, cell, blocks)
            cell.refill(came.tensors)
        else:
            self._leases.discard(blocks)
        return None

    def end(self, parts: PartList, error: DyOrcError | None) -> None:
        """Ends a stream, with or without an error."""
        cell = parts.last
        if cell.state is not FutureState.PENDING:
            return
        if error is not None:
            self._turn.fail(cell, error)
        else:
            cell.is_end = True
            self._turn.settle(cell, ())
