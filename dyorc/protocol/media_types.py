"""What a body is, as ``Content-Type`` and ``Accept`` say it."""

import struct

JSON = "application/json"

TENSORS = "application/octet-stream"
"""JSON with raw tensors behind it, or raw tensors alone."""

FRAMES = "application/vnd.dyorc.stream"
"""A stream whose parts are frames, each directly after the one before:

u32 LE json_bytes | u32 LE rest_bytes | JSON, as of a binary answer, or of an error | raw tensors
"""

FRAME_LENGTHS = struct.Struct("<II")
"""The beginning of a frame: the length of its JSON, and of the raw tensors behind it."""

EVENTS = "text/event-stream"
"""A stream whose parts are server-sent events, each of them JSON."""
