"""Errors as HTTP: one map from the error tree to status codes."""

import msgspec

from dyorc.errors import (
    AnswerTooLargeError,
    AuthenticationError,
    CapacityError,
    ClientError,
    ClientMemoryDisabledError,
    ConflictError,
    DeadlineError,
    DyOrcError,
    JobNotEndedError,
    PayloadTooLargeError,
    PermissionDeniedError,
    ReplicaLostError,
    RequestCancelledError,
    TenantLimitError,
    UnknownJobError,
    UnknownModelError,
    UnknownRegionError,
    UnknownRequestError,
    UnsupportedError,
)
from dyorc.gateway.request_ids import Ids
from dyorc.protocol.header_names import RETRY_AFTER, Header
from dyorc.protocol.wire_errors import ErrorBody, body_of, error_from_body

_RETRY_AFTER = RETRY_AFTER.encode()
_NOT_AGAIN: Header = (b"x-should-retry", b"false")
_SERVER_ERROR = 500

# The first class that matches counts, so subclasses come before their parents.
_STATUS: tuple[tuple[type[DyOrcError], int], ...] = (
    (UnknownModelError, 404),
    (UnknownRegionError, 404),
    (UnknownJobError, 404),
    (UnknownRequestError, 404),
    (AuthenticationError, 401),
    (PermissionDeniedError, 403),
    (ConflictError, 409),
    (JobNotEndedError, 409),
    (UnsupportedError, 501),
    (ClientMemoryDisabledError, 501),
    (PayloadTooLargeError, 413),
    (AnswerTooLargeError, 413),
    (ClientError, 400),
    (TenantLimitError, 429),
    (CapacityError, 503),
    (ReplicaLostError, 503),
    (DeadlineError, 504),
    (RequestCancelledError, 499),
    (DyOrcError, 500),
)


def status_of(error: DyOrcError) -> int:
    """Returns the HTTP status of an error."""
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def status_of_outcome(outcome: str) -> int:
    """Returns the HTTP status of ``ok``, or of the error with this code."""
    return 200 if outcome == "ok" else status_of(error_from_body(ErrorBody("", outcome)))


def retry_headers(error: Exception) -> list[Header]:
    """Returns what clients read that send again by themselves: Retry-After, in whole seconds, if the error says when to do so.

    OpenAI's clients send again after every status from 500 on, unless ``x-should-retry`` forbids it.
    """
    if not isinstance(error, DyOrcError):  # for clients a plain internal error
        return [_NOT_AGAIN]
    headers: list[Header] = []
    if error.retry_after_s is not None:
        headers.append((_RETRY_AFTER, str(max(1, round(error.retry_after_s))).encode()))
    if not error.retryable and status_of(error) >= _SERVER_ERROR:
        headers.append(_NOT_AGAIN)
    return headers


def error_body(error: Exception, ids: Ids) -> bytes:
    """Returns the form of every error on every route, encoded; with the ids of its request."""
    return msgspec.json.encode(body_of(error, ids.request_id, ids.trace_id))


def http_error_body(text: str, ids: Ids) -> bytes:
    """Returns the same for HTTP's own failures: no such route, or not with this method."""
    return msgspec.json.encode(ErrorBody(text, "http", False, ids.request_id, ids.trace_id))
