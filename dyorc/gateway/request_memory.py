"""The memory of one request: how its inputs get into the arena, and which regions of client memory it uses.

Inputs come in three ways: as JSON, as raw bytes behind it, or from a region of client memory. Large raw bytes of either kind are
written to the arena as they come, where programs read them; they are not copied again here. (In a large request that
mixes both kinds, only the bytes in its body get room there; the others are copied twice.)
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np

from dyorc.errors import PayloadTooLargeError
from dyorc.gateway.backend import BodyMemory
from dyorc.gateway.client_memory import ClientMemory, RegionSpan
from dyorc.transport.arena import ArenaBody
from dyorc.transport.outbox import offsets_of


class RequestMemory:
    """The memory of one request while entered.

    Args:
        max_bytes: How many bytes may come from client memory.

    Attributes:
        body: Room in the arena that inputs may lie in, if they are large.
    """

    def __init__(self, tensors: BodyMemory, clients: ClientMemory, max_bytes: int) -> None:
        self._tensors = tensors
        self._clients = clients
        self._max_bytes = max_bytes
        self._spans: list[RegionSpan] = []
        self.body: ArenaBody | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Frees the room, unless an input lies in it; then the engine decides when."""
        if self.body is not None:
            self._tensors.drop(self.body)
        for span in self._spans:
            span.region.release()

    def room(self, num_bytes: int, align_at: int = 0) -> memoryview | None:
        """Returns room in the arena for `num_bytes` bytes, which are tensors from `align_at` on.

        Returns None if tensors of that size travel inline, or if the request has room in the arena already: then use ordinary
        memory.

        Raises:
            CapacityError: If there is no room now.
            PayloadTooLargeError: If there never will be enough.
        """
        if self.body is not None or num_bytes - align_at <= self._tensors.inline_limit_bytes:
            return None
        self.body = self._tensors.body(num_bytes, align_at)
        return self.body.memory

    def span(self, region: str, offset: int, num_bytes: int) -> RegionSpan:
        """Returns a range of client memory, whose region stays open as long as this request.

        Raises:
            ClientError: See `ClientMemory.span`.
        """
        span = self._clients.span(region, offset, num_bytes)
        span.region.hold()
        self._spans.append(span)
        return span

    def check_allowed(self) -> None:
        """Checks that clients may share memory.

        Raises:
            ClientMemoryDisabledError: If they may not.
        """
        self._clients.check_allowed()

    def fetch(self, spans: Sequence[RegionSpan], *, is_kept: bool) -> list[memoryview]:
        """Returns the current bytes of ranges of client memory, each aligned.

        Args:
            is_kept: Whether programs can read the bytes as they are, so that large ones go to the arena.

        Raises:
            PayloadTooLargeError: If together they are longer than a request may be, or than the arena.
            CapacityError: If there is no room in the arena.
            DyOrcError: See `MemoryRegion.read_into`.
        """
        offsets, end = offsets_of([span.num_bytes for span in spans])
        num_bytes = sum(span.num_bytes for span in spans)
        if num_bytes > self._max_bytes:
            raise PayloadTooLargeError(
                f"the request's inputs in shared memory have {num_bytes} bytes, the limit is {self._max_bytes}"
            )
        memory = self.room(end) if is_kept else None
        if memory is None:
            memory = np.empty(end, np.uint8).data
        parts = [memory[at : at + span.num_bytes] for span, at in zip(spans, offsets, strict=True)]
        for span, part in zip(spans, parts, strict=True):
            span.region.read_into(part, span.offset)
        return parts
