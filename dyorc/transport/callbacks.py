"""What the orchestrator's end of a link calls, whatever carries it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dyorc.transport.codec import Frame
from dyorc.transport.endings import PeerEnding


@dataclass(frozen=True, slots=True)
class LinkCallbacks:
    """Called on the event loop.

    Attributes:
        received: Called with the peer's key and the frames of each message.
        drained: Called when there are no more messages, after some were.
        lost: Called with the peer's key when its connection is gone, and with how its process ended, as far as known.
    """

    received: Callable[[bytes, Sequence[Frame]], None]
    drained: Callable[[], None]
    lost: Callable[[bytes, PeerEnding], None]
