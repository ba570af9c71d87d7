"""Streams in the engine: lists of places where the parts of a call or task appear, one after another.

    cells:  ready  ready  ready  pending        the stream goes on
            ready  ready  ready  ready  end     it has ended
            ready  ready  failed                it has failed after two parts

A part is known by its call and its index, so reading needs no entry in a journal: a run that starts again finds the same parts
in the same places, whenever they came.
"""

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING
from weakref import ReferenceType, ref

from dyorc.authoring.stream import Hold, ReadingPlace
from dyorc.engine.model.futures import Argument, Future

if TYPE_CHECKING:
    from dyorc.engine.model.program_call import Call, Feed
    from dyorc.engine.model.request_tree import Task

_FEW = 8
"""Up to this many places of loops are kept without looking which have ended."""


class Cell(Future):
    """The place of one part, or of the end of a stream.

    Attributes:
        index: Of the part.
        is_end: Whether the stream has ended before a part came here; the cell is ready then, without tensors.
        digest: Of the tensors that a program's part came with first; empty if it cannot come again.
        arguments: What a workflow yielded here, one for each declared output; empty for a program's part.
    """

    __slots__ = ("arguments", "digest", "index", "is_end")

    def __init__(self, producer: "Call | Task", index: int) -> None:
        super().__init__(producer.context, producer)
        self.index = index
        self.is_end = False
        self.digest = b""
        self.arguments: tuple[Argument, ...] = ()

    def __repr__(self) -> str:
        return f"<{self.state.name.lower()} part {self.index} of {self.producer!r}>"


class StreamArgument:
    """A stream that a call or task takes whole, from its start. The stream knows it until the call or task has ended.

    Attributes:
        awaits_start: Whether its call waits until the call that yields the stream has a place, and then takes one itself.
    """

    __slots__ = ("awaits_start", "parts", "taker")

    def __init__(self, parts: "PartList", taker: "Call | Task") -> None:
        self.parts = parts
        self.taker = taker
        self.awaits_start = False
        parts.taken_by[self] = None

    @property
    def feeds(self) -> "list[Feed]":
        """How far it was fed to the call that takes it, while that runs."""
        feeds = getattr(self.taker, "feeds", ())
        return [feed for feed in feeds if feed.parts is self.parts and feed.is_live]

    def drop(self) -> None:
        """Ends it, because its call or task has ended."""
        parts = self.parts
        if parts.taken_by.pop(self, self) is None and not parts.taken_by:
            parts.lose_reader()


class PartList:
    """The parts of one call or task that yields.

    Attributes:
        producer: What yields them.
        owner: The context of its request, by which a Stream of another request is recognised.
        cells: A place for each part, in order; the last one is pending until the stream has ended.
        num_again: How many parts the current run of its call has yielded; fewer than have come, if the call runs again.
        num_read: How many parts its furthest reader has read.
        is_unbounded: Whether it goes on although nobody reads it, because the program has an effect.
        maybe_unread: Where it is listed, as perhaps unread, when something has ended that could read it; None if that no
            longer matters.
        places: How far loops have read it; some may have ended.
        taken_by: Calls and tasks that take it whole and have not ended.
    """

    __slots__ = (
        "_hold", "_prune_at", "cells", "is_unbounded", "maybe_unread", "num_again", "num_read", "owner", "places", "producer",
        "taken_by",
    )  # fmt: skip

    def __init__(self, producer: "Call | Task") -> None:
        self.producer: Call | Task | None = producer
        self.owner = producer.context
        self.cells: list[Cell] = [Cell(producer, 0)]
        self.num_again = 0
        self.num_read = 0
        self.is_unbounded = False
        self.maybe_unread: dict[PartList, None] | None = None
        self._hold: ReferenceType[Hold] | None = None
        self.places: list[ReadingPlace] = []
        self.taken_by: dict[StreamArgument, None] = {}
        self._prune_at = _FEW

    @property
    def num_parts(self) -> int:
        """How many parts have come."""
        return len(self.cells) - 1

    @property
    def last(self) -> Cell:
        """Where the next part, or the end, is or will be."""
        return self.cells[-1]

    def add_cell(self, producer: "Call | Task") -> None:
        """Adds the place of another part, after the last one has come."""
        self.cells.append(Cell(producer, len(self.cells)))

    @property
    def hold(self) -> Hold:
        """An object to which each `Stream` of it refers: with one, it may be read from its start."""
        hold = None if self._hold is None else self._hold()
        if hold is None:
            hold = Hold()
            self._hold = ref(hold, self.lose_reader)
        return hold

    def open_place(self, hold: Hold) -> ReadingPlace:
        """Returns the place of a new loop, which ends when nothing refers to its hold."""
        if len(self.places) >= self._prune_at:
            self.places = [place for place in self.places if place.is_open]
            self._prune_at = 2 * len(self.places) + _FEW
        place = ReadingPlace(hold, self.lose_reader)
        self.places.append(place)
        return place

    def lose_reader(self, _hold: ReferenceType[Hold] | None = None) -> None:
        """Lists it as perhaps unread: a loop over it, the last `Stream` of it, or what took it whole has ended."""
        if self.maybe_unread is not None:
            self.maybe_unread[self] = None

    @property
    def first_held(self) -> float:
        """The index of the first part that a Stream or a loop may still read; infinite if there is none."""
        if self._hold is not None and self._hold() is not None:
            return 0
        return min([place.index for place in self.places if place.is_open], default=inf)

    @property
    def furthest(self) -> int:
        """How many parts the furthest loop or running call has read that reads it now."""
        places = [place.index for place in self.places if place.is_open]
        return max([*places, *[feed.num_taken for each in self.taken_by for feed in each.feeds]], default=0)

    def dismantle(self, unpin: Callable[[Future], None] | None) -> None:
        """Cuts its cycles, because it is no longer used.

        Args:
            unpin: Called with each place, if tensors may be pinned.
        """
        self.producer = self.maybe_unread = self._hold = None
        self.places = []
        self.taken_by.clear()
        for cell in self.cells:
            cell.producer = None
            cell.dependents = []
            if unpin is not None:
                unpin(cell)

    def __repr__(self) -> str:
        return f"<{self.num_parts} parts of {self.producer!r}>"
