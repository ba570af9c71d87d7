"""The effects that a client's operations ask their shell for, and the outcomes.

Operations are generators without I/O: they yield effects, are sent the outcomes, and return what the caller gets. The shells
in `exchanges` carry effects out. So every decision is written once, for the blocking client and for asyncio.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from dyorc.errors import DyOrcError
from dyorc.protocol.inference_request import PreparedRequest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request and read its answer: `Reply` or `Broken`.

    Attributes:
        deadline_s: When to give up, on the operation's clock; infinity for never.
        is_streamed: Whether to leave the body of an answer with status 200 to `Read`.
    """

    request: PreparedRequest
    deadline_s: float
    is_streamed: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """Read more of a streamed answer: `bytes`, empty at its end, or `Broken`."""

    deadline_s: float


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait, in seconds; the outcome is None."""

    duration_s: float


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand a part to the caller; the outcome is None."""

    value: Any


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with any status.

    Attributes:
        headers: By their names in lower case.
        body: Empty if it is streamed.
        start: Where in `body` the answer begins; the bytes before it align its tensors.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes | bytearray | memoryview = b""
    start: int = 0

    @property
    def content(self) -> memoryview:
        """The body as sent."""
        return memoryview(self.body)[self.start :]


@dataclass(frozen=True, slots=True)
class BrokenExchange:
    """An exchange without an answer, or with only a part of it.

    Attributes:
        error: What the caller gets if there is no other attempt.
        was_sent: Whether the server may have received the request, and may have run it.
        is_final: Whether trying again is pointless.
    """

    error: DyOrcError
    was_sent: bool
    is_final: bool = False


Effect: TypeAlias = Send | Read | Sleep
Flow: TypeAlias = Generator[Effect, Any, T]
"""An operation that returns a `T`."""

Parts: TypeAlias = Generator[Effect | Emit, Any, None]
"""An operation that yields parts."""
