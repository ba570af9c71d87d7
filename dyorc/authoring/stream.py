"""`Stream`: a result that grows, as a workflow's code holds it."""

from collections.abc import Callable, Generator
from typing import Any
from weakref import ReferenceType, WeakSet, ref

from dyorc.authoring.ref import Ref, refuse_use
from dyorc.authoring.signature import OutputSpec


class _EndOfStream:
    def __repr__(self) -> str:
        return "END_OF_STREAM"


END_OF_STREAM = _EndOfStream()
"""What a run answers to `NextPart` when no more follows."""

_INSTEAD = "read it by `async for part in stream`, or all of it by `await dyorc.collect(stream)`"


@refuse_use(lambda stream: ("a Stream", _INSTEAD), is_value=False)
class Stream:
    """The parts that a program or workflow yields, in order: the result of calling one that yields.

    ``async for part in stream`` gives each part as a Ref that is at hand: pass it on, yield it, or await it. Several loops may
    read the same stream, each from its start. ``await dyorc.collect(stream)`` waits for the end and returns the values of all
    parts. A program or workflow whose parameter is annotated ``AsyncIterator[...]`` takes the stream whole, and reads it while
    it grows.

    As it can be read again, all its parts are kept as long as something refers to it: write ``async for part in speak(text)``,
    without a name for the stream, or close it, best by ``async with contextlib.aclosing(speak(text)) as stream``.

    A replica is at most `EngineConfig.max_untaken_parts` parts ahead of the furthest reader.

    Attributes:
        parts: The engine's place for the parts.
        outputs: How the value of one part is grouped.
        hold: An object of the engine's. Everything that may still read the stream from its start refers to it.
        is_closed: Whether it was closed, and can no longer be read or passed.
    """

    __slots__ = ("_readers", "hold", "is_closed", "outputs", "parts")

    def __init__(self, parts: Any, outputs: OutputSpec) -> None:
        self.parts = parts
        self.outputs = outputs
        self.hold = getattr(parts, "hold", None)
        self.is_closed = False
        self._readers: WeakSet[StreamReader] | None = None

    def __aiter__(self) -> "StreamReader":
        reader = StreamReader(self.parts, self.outputs)
        if self.is_closed:
            reader.close()
        else:
            if self._readers is None:
                self._readers = WeakSet()
            self._readers.add(reader)
        return reader

    async def aclose(self) -> None:
        """Ends all loops over it, as of an async generator; one that begins later finds nothing.

        What nothing else reads is ended: its program's ``finally`` blocks run.
        """
        self.is_closed = True
        self.hold = None
        for reader in self._readers or ():
            reader.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self)  # the run refuses it, and says where

    @staticmethod
    def refusal() -> str:
        """Returns why a workflow may not await it."""
        return f"awaits a Stream, which cannot be awaited; {_INSTEAD}"

    def __repr__(self) -> str:
        return f"Stream({self.parts})"


class Hold:
    """What everything refers to that may read a stream, or read on in it. Once nothing does, the engine learns of it."""

    __slots__ = ("__weakref__",)


class ReadingPlace:
    """How far a loop has read a stream.

    Args:
        hold: An object to which only the loop refers.
        on_end: Called once nothing refers to it, because the loop has ended.

    Attributes:
        index: Of the part that it reads next.
    """

    __slots__ = ("_hold", "index")

    def __init__(self, hold: Hold, on_end: "Callable[[ReferenceType[Hold]], None] | None" = None) -> None:
        self.index = 0
        self._hold = ref(hold, on_end)

    @property
    def is_open(self) -> bool:
        """Whether the loop has not ended."""
        return self._hold() is not None


class StreamReader:
    """One loop over a stream, from its start. It does not refer to the Stream: what it has passed, it cannot read again.

    Args:
        parts: The engine's place for the parts. If it has a method `open_place`, that takes the loop's hold, and returns its
            `ReadingPlace`.
        outputs: How the value of one part is grouped.
    """

    __slots__ = ("__weakref__", "_hold", "_is_closed", "_outputs", "_parts", "_place")

    def __init__(self, parts: Any, outputs: OutputSpec) -> None:
        self._parts = parts
        self._outputs = outputs
        open_place = getattr(parts, "open_place", ReadingPlace)
        self._hold: Hold | None = Hold()
        self._place: ReadingPlace = open_place(self._hold)
        self._is_closed = False

    def close(self) -> None:
        """Gives up its place: the engine need not keep what it has not read."""
        self._is_closed = True
        self._hold = None

    async def aclose(self) -> None:
        """Ends the loop, as of an async generator: no part follows."""
        self.close()

    def __aiter__(self) -> "StreamReader":
        return self

    async def __anext__(self) -> Ref:
        """Returns the next part.

        Raises:
            StopAsyncIteration: After the last one.
            DyOrcError: If the stream failed after the parts before.
        """
        if self._is_closed:
            raise StopAsyncIteration
        place = self._place
        part = await NextPart(self._parts, self._outputs, place.index)
        if part is END_OF_STREAM:
            raise StopAsyncIteration
        place.index += 1
        return part


class NextPart:
    """What a run of a workflow waits for when it reads on: the part of this index, or the end of the stream."""

    __slots__ = ("index", "outputs", "parts")

    def __init__(self, parts: Any, outputs: OutputSpec, index: int) -> None:
        self.parts = parts
        self.outputs = outputs
        self.index = index

    def __await__(self) -> Generator["NextPart", Any, Any]:
        return (yield self)


async def collect(stream: Stream) -> list[Any]:
    """Waits for the end of a stream: ``words = await dyorc.collect(speak(text))``.

    Returns:
        The value of each part in order (NumPy, grouped as its program or workflow declares).

    Raises:
        TypeError: If `stream` is no stream.
        DyOrcError: If it failed.
    """
    if not isinstance(stream, Stream):  # pyright: ignore[reportUnnecessaryIsInstance] -- a mistake that people make
        raise TypeError(f"dyorc.collect takes a Stream, got {type(stream).__name__}")
    return [await part async for part in stream]
