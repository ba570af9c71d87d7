"""The inputs of a gateway's requests, in its own arena: kept until a request is over and nothing reads them.

Only the orchestrator knows whether somebody still reads: a batch may run although its request was cancelled. When it is lost, its
replicas may read on for a while.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dyorc.core.tensor import TensorRef, blocks_of

_LINGER_S = 5.0
"""How long batches of an orchestrator that is gone may still read."""


@dataclass(slots=True)
class _RetainedInputs:
    is_wanted: bool = True
    is_read: bool = True


class InputRetention:
    """Which blocks have to stay.

    Args:
        free: Frees a block.
    """

    def __init__(self, free: Callable[[int], object]) -> None:
        self._free = free
        self._kept: dict[int, _RetainedInputs] = {}

    @property
    def is_read(self) -> bool:
        """Whether somebody may still read inputs of a request that is over: an effect that comes after the answer does."""
        return any(not kept.is_wanted for kept in self._kept.values())

    def keep(self, refs: Sequence[TensorRef]) -> None:
        """Keeps the inputs of a request that begins."""
        for _, block in blocks_of(refs):
            self._kept[block] = _RetainedInputs()

    def over(self, refs: Sequence[TensorRef], *, was_sent: bool) -> None:
        """Notes that a request is over.

        Args:
            was_sent: Whether the orchestrator had it, and says when its inputs are read.
        """
        for _, block in blocks_of(refs):
            if (kept := self._kept.get(block)) is not None:
                kept.is_wanted = False
                kept.is_read = kept.is_read and was_sent
                self._settle(block, kept)

    def released(self, blocks: Sequence[int]) -> None:
        """Notes that these blocks are no longer read."""
        for block in blocks:
            if (kept := self._kept.get(block)) is not None:
                kept.is_read = False
                self._settle(block, kept)

    def again(self, refs: Sequence[TensorRef]) -> None:
        """Notes that a request is submitted to another orchestrator."""
        for _, block in blocks_of(refs):
            if (kept := self._kept.get(block)) is not None:
                kept.is_read = True

    def lost(self) -> None:
        """Notes that the orchestrator is gone: soon nobody reads what is not wanted."""
        left = [block for block, kept in self._kept.items() if not kept.is_wanted]
        if left:
            asyncio.get_running_loop().call_later(_LINGER_S, self.released, left)

    def _settle(self, block: int, kept: _RetainedInputs) -> None:
        if not kept.is_wanted and not kept.is_read:
            del self._kept[block]
            self._free(block)
