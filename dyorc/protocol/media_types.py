"""What a body is, as ``Content-Type`` and ``Accept`` say it."""

JSON = "application/json"

TENSORS = "application/octet-stream"
"""JSON with raw tensors behind it, or raw tensors alone."""

FRAMES = "application/vnd.dyorc.stream"
"""A stream whose parts are frames (`dyorc.protocol.frames`)."""

EVENTS = "text/event-stream"
"""A stream whose parts are server-sent events, each of them JSON."""
