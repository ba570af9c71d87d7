"""The parts of calls of programs that yield: they go into their places, and readers go on.

yielded ── CallPart ──> in its cell: readers go on ──> read further than ever: the replica may send more
call done ──> the next cell is the end           call failed ──> the next cell fails; the parts before it stay valid
"""

from dyorc.core.tensor import blocks_of
from dyorc.engine.block_leases import BlockLeases
from dyorc.engine.model.futures import PENDING
from dyorc.engine.model.part_list import PartList
from dyorc.engine.model.program_call import CallState
from dyorc.engine.tasks.early_release import EarlyRelease
from dyorc.engine.turn import CallPart, Turn
from dyorc.errors import DyOrcError


class PartTaker:
    """Fills the places of parts."""

    def __init__(self, turn: Turn, leases: BlockLeases, release: EarlyRelease) -> None:
        self._turn = turn
        self._leases = leases
        self._release = release

    def take(self, came: CallPart) -> bool:
        """Takes a part that a call has yielded for the first time. Returns False if it came before."""
        call, parts = came.call, came.call.parts
        blocks = blocks_of(came.tensors)
        if parts is None or call.state in (CallState.WITHDRAWN, CallState.SETTLED):
            self._leases.discard(blocks)
            return True
        parts.num_again = came.index + 1
        if came.index < parts.num_parts or call.restores is not None:
            return False
        cell = parts.last
        parts.add_cell(call)
        cell.digest = came.digest
        if blocks:
            request = call.segment.task.request
            request.has_stored = True
            self._leases.pin_new(request.pinned, cell, blocks)
            self._release.touch(request)
        self._turn.settle(cell, came.tensors)
        return True

    def end(self, parts: PartList, error: DyOrcError | None) -> None:
        """Ends a stream, with or without an error."""
        cell = parts.last
        if cell.state is not PENDING:
            return
        if error is not None:
            self._turn.fail(cell, error)
        else:
            cell.is_end = True
            self._turn.settle(cell, ())
