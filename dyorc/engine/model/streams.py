"""How far the parts of a streaming request have come (`dyorc.engine.tasks.parts` sends them)."""

from collections.abc import Iterator

from dyorc.engine.model.journal import Segment, StreamPart
from dyorc.errors import DyOrcError


class Stream:
    """How far the parts of a request have come.

    Attributes:
        front: Where the next part to be sent stands, or will; None if there will be none, because one part could not be computed.
        untaken: Parts that were sent and not taken, by their index.
        num_taken: Parts that were.
        is_ended: Whether the workflow has ended.
        error: What the request fails with when all parts have been taken.
    """

    __slots__ = ("error", "front", "is_ended", "num_taken", "untaken")

    def __init__(self, journal: Segment) -> None:
        self.front: Segment | None = journal
        self.untaken: dict[int, StreamPart] = {}
        self.num_taken = 0
        self.is_ended = False
        self.error: DyOrcError | None = None

    def unsent(self) -> Iterator[StreamPart]:
        """Yields the parts that are certain and still to be sent."""
        segment = self.front
        while segment is not None:
            if isinstance(segment.end, StreamPart):
                yield segment.end
            segment = segment.next_taken()

    def is_due(self, part: StreamPart) -> bool:
        """Returns whether a part is still to be sent, or to be taken."""
        return self.untaken.get(part.index) is part or part in self.unsent()
