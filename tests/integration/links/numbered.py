"""Messages that tell whether they came whole, and in their order."""

import random
import zlib
from collections.abc import Sequence

from dyorc.transport.column_codec import Frame

_MAX_BYTES = 2**20


def numbered(number: int, num_bytes: int | None = None) -> list[Frame]:
    """Returns a message: its number, a check sum, an empty frame, and up to 1 MiB in two frames, as the number says."""
    chance = random.Random(number)
    length = int(_MAX_BYTES ** chance.random()) if num_bytes is None else num_bytes
    body = chance.randbytes(64) * (length // 64 + 1)
    cut = chance.randrange(length)
    frames = body[:cut], body[cut:length]
    return [str(number).encode(), str(zlib.crc32(body[:length])).encode(), b"", *frames]


def first_wrong(messages: Sequence[Sequence[Frame]]) -> str:
    """Returns what is wrong with messages that were numbered from 0; empty if nothing is."""
    for at, (number, check_sum, *frames) in enumerate(messages):
        if int(bytes(number)) != at:
            return f"message {int(bytes(number))} came as {at}"
        if len(frames) != 3 or zlib.crc32(b"".join(frames)) != int(bytes(check_sum)):
            return f"message {at} is not what was sent"
    return ""
