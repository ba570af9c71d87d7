"""Header frames of messages: tagged msgpack. Greetings carry the protocol's version."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from dyorc.core.decode_errors import DECODE_ERRORS
from dyorc.errors import TransportError
from dyorc.transport.column_codec import Frame

Message = TypeVar("Message")

encode_header: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
"""Returns the header frame of a message."""


class HeaderCodec(Generic[Message]):
    """Reads the header frames that one end sends.

    Args:
        kinds: The union of its messages.
        greetings: The messages that carry the sender's protocol version, in `version`.
        version: The expected version.
        speaker: Returns the sender of a greeting, for error texts.
    """

    def __init__(self, kinds: Any, greetings: tuple[type[Any], ...], version: int, speaker: Callable[[Any], str]) -> None:
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kinds)
        self._greetings = greetings
        self._version = version
        self._speaker = speaker

    def decode(self, frame: Frame) -> Message:
        """Reads a header frame.

        Raises:
            TransportError: If it is not a message of this version.
        """
        try:
            message = self._decoder.decode(frame)
        except DECODE_ERRORS as error:
            raise TransportError(f"a header of {len(frame)} bytes is not a message: {error}") from error
        if isinstance(message, self._greetings) and message.version != self._version:
            raise TransportError(f"{self._speaker(message)} speaks version {message.version}, expected {self._version}")
        return message
