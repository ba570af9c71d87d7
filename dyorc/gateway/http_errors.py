"""Errors as HTTP: one map from the error tree to status codes."""

from typing import TypeAlias

import orjson

from dyorc.errors import (
    CapacityError,
    ClientError,
    ClientMemoryDisabledError,
    DeadlineError,
    DyOrcError,
    PayloadTooLargeError,
    ReplicaLostError,
    RequestCancelledError,
    UnknownModelError,
    UnknownRegionError,
)

Header: TypeAlias = tuple[bytes, bytes]

# The first class that fits counts, so a subclass stands before its parent.
_STATUS: tuple[tuple[type[DyOrcError], int], ...] = (
    (UnknownModelError, 404),
    (UnknownRegionError, 404),
    (ClientMemoryDisabledError, 501),
    (PayloadTooLargeError, 413),
    (ClientError, 400),
    (CapacityError, 503),
    (ReplicaLostError, 503),
    (DeadlineError, 504),
    (RequestCancelledError, 499),
    (DyOrcError, 500),
)


def status_of(error: DyOrcError) -> int:
    """The HTTP status of an error."""
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def retry_headers(error: DyOrcError) -> list[Header]:
    """Retry-After, in whole seconds, if the error says when to come back."""
    if error.retry_after_s is None:
        return []
    return [(b"retry-after", str(max(1, round(error.retry_after_s))).encode())]


def error_body(message: str) -> bytes:
    """Every error of every route looks like this."""
    return orjson.dumps({"error": message})
