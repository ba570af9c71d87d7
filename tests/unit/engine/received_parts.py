"""What the consumers of a world's streams were sent, and have read."""

from collections import Counter

from dyorc.core.arrays import Array
from dyorc.core.tensor import BlockId, TensorRef, blocks_of


class ReceivedParts:
    """The parts of all requests: each is sent in its order, no further ahead of its reader than allowed, and never after the end.

    Args:
        max_untaken: How many parts of a request may wait.

    Attributes:
        taken: Parts that were read, by request.
        waiting: Parts that were sent and not read, by request and index.
        num_sent: Parts that were sent, by request.
    """

    def __init__(self, max_untaken: int) -> None:
        self._max_untaken = max_untaken
        self.taken: dict[int, list[list[Array]]] = {}
        self.waiting: dict[int, dict[int, tuple[TensorRef, ...]]] = {}
        self.num_sent: Counter[int] = Counter()

    def next(self, request_id: int) -> int | None:
        """Returns the part of a request that its consumer reads next; None if it is not there."""
        index = len(self.taken.get(request_id, ()))
        return index if index in self.waiting.get(request_id, ()) else None

    def takable(self) -> list[int]:
        """Returns the requests of which a part can be read."""
        return [request_id for request_id in self.waiting if self.next(request_id) is not None]

    def blocks(self, request_id: int) -> set[BlockId]:
        """Returns the blocks of the parts that can be read; not of those after a lost one."""
        parts, index = self.waiting[request_id], len(self.taken.get(request_id, ()))
        blocks: set[BlockId] = set()
        while index in parts:
            blocks.update(blocks_of(parts[index]))
            index += 1
        return blocks

    def add(self, request_id: int, index: int, tensors: tuple[TensorRef, ...]) -> None:
        """Takes a part that was sent."""
        assert index <= self.num_sent[request_id], f"part {index} of request {request_id} comes too early"
        waiting = self.waiting.setdefault(request_id, {})
        assert index not in waiting or set(blocks_of(waiting[index])) - set(blocks_of(tensors)), f"part {index} was sent twice"
        assert index >= len(self.taken.get(request_id, ())), f"part {index} of request {request_id} was taken before"
        waiting[index] = tensors
        self.num_sent[request_id] = max(self.num_sent[request_id], index + 1)
        num_untaken = self.num_sent[request_id] - len(self.taken.get(request_id, ()))
        assert num_untaken <= self._max_untaken, f"{num_untaken} parts of request {request_id} wait"
