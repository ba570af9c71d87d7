"""`Stream`: a result that grows, as a workflow's code holds it."""

from collections.abc import Generator
from typing import Any

from dyorc.authoring.ref import Ref, refuse_use
from dyorc.authoring.signature import OutputSpec
from dyorc.errors import WorkflowError


class _EndOfStream:
    def __repr__(self) -> str:
        return "END_OF_STREAM"


END_OF_STREAM = _EndOfStream()
"""What a run answers to `NextPart` when no more follows."""

_INSTEAD = "read it by `async for part in stream`, or all of it by `await dyorc.collect(stream)`"


@refuse_use(lambda stream: ("a Stream", _INSTEAD))
class Stream:
    """The parts that a program or workflow yields, in order: the result of calling one that yields.

    ``async for part in stream`` gives each part as a Ref that is at hand: pass it on, yield it, or await it. Several loops may
    read the same stream, each from its start. ``await dyorc.collect(stream)`` waits for the end and returns the values of all
    parts. A program or workflow whose parameter is annotated ``AsyncIterator[...]`` takes the stream whole, and reads it while
    it grows.

    A replica is at most `EngineConfig.max_untaken_parts` parts ahead of the furthest reader.

    Attributes:
        parts: The engine's place for the parts.
        outputs: How the value of one part is grouped.
        hold: An object of the engine's. Everything that may still read the stream refers to it.
    """

    __slots__ = ("hold", "outputs", "parts")

    def __init__(self, parts: Any, outputs: OutputSpec) -> None:
        self.parts = parts
        self.outputs = outputs
        self.hold = getattr(parts, "hold", None)

    def __aiter__(self) -> "StreamReader":
        return StreamReader(self)

    def __await__(self) -> Generator[Any, Any, Any]:
        raise WorkflowError(f"a Stream cannot be awaited; {_INSTEAD}")

    def __repr__(self) -> str:
        return f"Stream({self.parts})"


class StreamReader:
    """One loop over a stream, from its start."""

    __slots__ = ("index", "stream")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.index = 0

    def __aiter__(self) -> "StreamReader":
        return self

    async def __anext__(self) -> Ref:
        """Returns the next part.

        Raises:
            StopAsyncIteration: After the last one.
            DyOrcError: If the stream failed after the parts before.
        """
        part = await NextPart(self.stream, self.index)
        if part is END_OF_STREAM:
            raise StopAsyncIteration
        self.index += 1
        return part


class NextPart:
    """What a run of a workflow waits for when it reads on: the part of this index, or the end of the stream."""

    __slots__ = ("index", "stream")

    def __init__(self, stream: Stream, index: int) -> None:
        self.stream = stream
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
