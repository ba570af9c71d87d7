"""Parses the path and the headers of an inference request."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dyorc.core.trace_context import TraceContext
from dyorc.errors import InvalidInputError
from dyorc.gateway.http.compression import Encoding, accepted_encoding, encoding_of, weight_of
from dyorc.gateway.request_ids import TRACEPARENT_NAME, TRACESTATE_NAME, caller_of, usable_id
from dyorc.gateway.request_parameters import priority_in_header, priority_in_headers
from dyorc.protocol import header_names, media_types
from dyorc.protocol.api_paths import GENERATE, GENERATE_STREAM, INFER, INFER_STREAM, MODELS, RUN, RUN_MODEL
from dyorc.protocol.header_names import Header

_FRAMES = media_types.FRAMES.encode()
_JSON_LENGTH = header_names.JSON_LENGTH.encode()
_REQUEST_ID = header_names.REQUEST_ID.encode()
_TIMEOUT = header_names.TIMEOUT.encode()
_PRIORITY = header_names.PRIORITY.encode()

_MAX_LENGTH_DIGITS = 18
"""How many digits a length in a header may have; Python refuses to parse thousands."""

_ACTIONS = frozenset({INFER, INFER_STREAM, GENERATE, GENERATE_STREAM})
_MODELS = f"{MODELS}/"
_RUN = f"{RUN_MODEL}/"
_READ = frozenset(
    {
        b"content-length",
        _JSON_LENGTH,
        b"accept-encoding",
        b"accept",
        b"content-encoding",
        b"expect",
        _REQUEST_ID,
        _TIMEOUT,
        _PRIORITY,
        TRACEPARENT_NAME,
        TRACESTATE_NAME,
    }
)
_SECONDS = re.compile(rb"\d{1,15}(\.\d{1,15})?")


class InferenceTarget(NamedTuple):
    """What the path of an inference request names."""

    model: str
    version: str | None
    action: str


class RequestHead(NamedTuple):
    """A request, before its body.

    Attributes:
        announced_bytes: Length of the body as sent; None if unknown.
        json_bytes: Length of the JSON at the beginning of the body, after decompression; None if all of it is JSON.
        encoding: How the body is compressed.
        answer_encoding: How to compress the answer.
        negotiates: Whether the client sent ``Accept-Encoding``.
        timeout_s: For how long the client waits.
        accepts_frames: Whether a stream may be sent as frames.
        expects_continue: Whether the client waits for "100 Continue" before it sends the body.
        request_id: The client's id for the request; empty if the headers contain none that can be used.
        caller: The client's place in a trace, if it sent one.
        priority: Of a request whose body names none.
    """

    announced_bytes: int | None = None
    json_bytes: int | None = None
    encoding: Encoding | None = None
    answer_encoding: Encoding | None = None
    negotiates: bool = False
    timeout_s: float | None = None
    accepts_frames: bool = False
    expects_continue: bool = False
    request_id: str = ""
    caller: TraceContext | None = None
    priority: int = 0


def target_of(path: str) -> InferenceTarget | None:
    """Parses the path of an inference route; None for other paths.

    These are ``/v2/models/{model}[/versions/{version}]/{action}`` and ``/run/{model}[/versions/{version}]``.
    """
    if not path.startswith(_MODELS):
        return _run_target(path.split("/")) if path.startswith(_RUN) else None
    parts = path.split("/")
    if parts[-1] not in _ACTIONS or not parts[3]:
        return None
    if len(parts) == 5:
        return InferenceTarget(parts[3], None, parts[4])
    if len(parts) == 7 and parts[4] == "versions" and parts[5]:
        return InferenceTarget(parts[3], parts[5], parts[6])
    return None


def _run_target(parts: list[str]) -> InferenceTarget | None:
    if len(parts) == 3 and parts[2]:
        return InferenceTarget(parts[2], None, RUN)
    if len(parts) == 5 and parts[2] and parts[3] == "versions" and parts[4]:
        return InferenceTarget(parts[2], parts[4], RUN)
    return None


def read_head(sent: Sequence[Header], *, is_old: bool = False) -> RequestHead:
    """Reads the headers of an inference request. One chain of comparisons: it runs for every request.

    Args:
        sent: The headers, with names in lower case. Of several with one name, the first counts.
        is_old: Whether the request is in HTTP/1.0.

    Raises:
        InvalidInputError: If a header is malformed.
    """
    announced_bytes = json_bytes = encoding = answer_encoding = timeout_s = None
    negotiates = accepts_frames = expects_continue = False
    request_id = ""
    priority = 0
    parent = state = b""
    for name, value in reversed(sent):
        if name not in _READ:
            continue
        if name == b"content-length":
            announced_bytes = int(value)  # the HTTP parser has checked it
        elif name == _JSON_LENGTH:
            json_bytes = _json_length_of(value)
        elif name == b"accept-encoding":
            answer_encoding, negotiates = accepted_encoding(value), True
        elif name == b"accept":
            accepts_frames = accepts(_FRAMES, value)
        elif name == b"content-encoding":
            encoding = encoding_of(value)
        elif name == b"expect":
            expects_continue = value.lower() == b"100-continue" and not is_old
        elif name == _REQUEST_ID:
            request_id = usable_id(value.decode("latin-1"))
        elif name == TRACEPARENT_NAME:
            parent = value
        elif name == TRACESTATE_NAME:
            state = value
        elif name == _PRIORITY:
            priority = priority_in_header(value)
        else:
            timeout_s = timeout_s_of(value)
    return RequestHead(
        announced_bytes, json_bytes, encoding, answer_encoding, negotiates, timeout_s, accepts_frames, expects_continue,
        request_id, caller_of(parent, state) if parent else None, priority,
    )  # fmt: skip


def _json_length_of(value: bytes) -> int:
    if not value.isdigit() or len(value) > _MAX_LENGTH_DIGITS:
        shown = value[:_MAX_LENGTH_DIGITS].decode("latin-1")
        raise InvalidInputError(f"Inference-Header-Content-Length is {shown!r}, expected a number of bytes")
    return int(value)


def accepts(media_type: bytes, value: bytes) -> bool:
    """Returns whether an ``Accept`` names a media type, in lower case, and does not refuse it (``;q=0``)."""
    value = value.lower()
    if media_type not in value:
        return False
    items = (item.split(b";") for item in value.split(b","))
    return any(name.strip() == media_type and weight_of(parameters) > 0 for name, *parameters in items)


def limit_s_of(headers: Iterable[Header]) -> float | None:
    """Returns how long the client waits, if stated; a malformed value is refused where the whole head is read."""
    for name, value in headers:
        if name == _TIMEOUT:
            try:
                return timeout_s_of(value)
            except InvalidInputError:
                return None
    return None


def sent_timeout_s(headers: Iterable[Header]) -> float | None:
    """Returns how long the client waits, if stated.

    Raises:
        InvalidInputError: If it is malformed.
    """
    return next((timeout_s_of(value) for name, value in headers if name == _TIMEOUT), None)


def sent_priority(headers: Iterable[Header]) -> int:
    """Returns the priority that the client asks for; 0 if it states none.

    Raises:
        InvalidInputError: If it is malformed.
    """
    return priority_in_headers(headers)


def timeout_s_of(value: bytes) -> float:
    """Returns the seconds that the client waits, from a header.

    Raises:
        InvalidInputError: If it is malformed.
    """
    if not _SECONDS.fullmatch(value):
        raise InvalidInputError(
            f"Request-Timeout is {value[:40].decode('latin-1')!r}, expected seconds with at most 15 digits, such as 2 or 0.5"
        )
    return float(value)
