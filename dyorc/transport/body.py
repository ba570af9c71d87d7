"""Room for what a client sends."""

import numpy as np

from dyorc.core.arrays import Array, address_of
from dyorc.transport.arena import ArenaBlock


class ArenaBody:
    """Memory for what a client sends, in the arena from the start.

    Attributes:
        memory: As long as was asked for.
        is_used: Whether a tensor lies in it; then the engine decides when it is freed.
    """

    def __init__(self, block: ArenaBlock, lead: int) -> None:
        self.block = block
        self.memory = block.memory[lead:]
        self.is_used = False
        self._offset = block.offset + lead
        self._address = address_of(np.frombuffer(self.memory, np.uint8))

    def offset_of(self, array: Array) -> int | None:
        """Returns where in the arena an array's bytes lie; None if not in this body, not contiguous, or not aligned."""
        at = address_of(array) - self._address
        is_inside = at >= 0 and at + array.nbytes <= len(self.memory)
        return self._offset + at if is_inside and array.flags.c_contiguous and array.flags.aligned else None
