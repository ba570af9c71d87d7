"""A place in a trace, as W3C's Trace Context describes it. Pure functions; nothing of any library for traces."""

import re
import secrets
from hashlib import blake2b

import msgspec

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_MAX_HEADER_CHARS = 512
_SAMPLED = 1


class TraceContext(msgspec.Struct, frozen=True, gc=False):
    """A span, as others refer to it.

    Attributes:
        trace_id: 32 hexadecimal digits.
        span_id: 16 hexadecimal digits.
        is_sampled: Whether its trace is kept.
        state: ``tracestate``, passed on as it is.
    """

    trace_id: str
    span_id: str
    is_sampled: bool = False
    state: str = ""

    @property
    def traceparent(self) -> str:
        """The value of the header ``traceparent``."""
        return f"00-{self.trace_id}-{self.span_id}-0{int(self.is_sampled)}"

    def child(self, name: str) -> "TraceContext":
        """Returns the span below it that has this name: always the same, so that its id is known before and after it exists."""
        span_id = blake2b(f"{self.span_id} {name}".encode(), digest_size=8).hexdigest()
        return TraceContext(self.trace_id, span_id, self.is_sampled, self.state)

    def new_child(self, *, is_sampled: bool) -> "TraceContext":
        """Returns another span below it."""
        return TraceContext(self.trace_id, secrets.token_hex(8), is_sampled, self.state)


def new_trace(*, is_sampled: bool) -> TraceContext:
    """Returns the first span of a new trace."""
    return TraceContext(secrets.token_hex(16), secrets.token_hex(8), is_sampled)


def read_traceparent(traceparent: str, state: str = "") -> TraceContext | None:
    """Returns the caller's span.

    Args:
        traceparent: The header's value.
        state: The value of the header ``tracestate``.

    Returns:
        None if the value is malformed, as the standard demands: the trace then starts here.
    """
    match = _TRACEPARENT.fullmatch(traceparent.strip()) if len(traceparent) <= _MAX_HEADER_CHARS else None
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or not (trace_id.strip("0") and span_id.strip("0")):
        return None
    is_state_usable = len(state) <= _MAX_HEADER_CHARS and state.isascii() and state.isprintable()
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED), state.strip() if is_state_usable else "")
