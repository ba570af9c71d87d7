# pyright: basic
# grpcio ships no types.
"""Errors over gRPC: maps the tree of errors to status codes and metadata."""

import asyncio
from typing import Any, NoReturn

import grpc
import structlog

from dyorc.errors import (
    AnswerTooLargeError,
    AuthenticationError,
    CapacityError,
    ClientError,
    ClientMemoryDisabledError,
    ConflictError,
    DeadlineError,
    DyOrcError,
    InternalError,
    NotReadyError,
    OverloadedError,
    PermissionDeniedError,
    ReplicaLostError,
    RequestCancelledError,
    UnknownJobError,
    UnknownModelError,
    UnknownRegionError,
    UnknownRequestError,
    UnsupportedError,
)
from dyorc.gateway.request_ids import Ids
from dyorc.protocol.header_names import GRPC_CODE, GRPC_RETRY_MS, GRPC_RETRYABLE, GRPC_TRACE_ID, REQUEST_ID

_log = structlog.get_logger("dyorc.gateway")

_MAX_TEXT_BYTES = 2000
"""The longest error text: it travels in a header, where one byte may take three, and clients refuse headers over 8 KiB."""

# The first class that matches counts, so subclasses come before their parents.
_STATUS: tuple[tuple[type[DyOrcError], grpc.StatusCode], ...] = (
    (UnknownModelError, grpc.StatusCode.NOT_FOUND),
    (UnknownRegionError, grpc.StatusCode.NOT_FOUND),
    (UnknownJobError, grpc.StatusCode.NOT_FOUND),
    (UnknownRequestError, grpc.StatusCode.NOT_FOUND),
    (AuthenticationError, grpc.StatusCode.UNAUTHENTICATED),
    (PermissionDeniedError, grpc.StatusCode.PERMISSION_DENIED),
    (ConflictError, grpc.StatusCode.ALREADY_EXISTS),
    (UnsupportedError, grpc.StatusCode.UNIMPLEMENTED),
    (ClientMemoryDisabledError, grpc.StatusCode.UNIMPLEMENTED),
    (ClientError, grpc.StatusCode.INVALID_ARGUMENT),
    (NotReadyError, grpc.StatusCode.UNAVAILABLE),
    (OverloadedError, grpc.StatusCode.UNAVAILABLE),
    (CapacityError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (AnswerTooLargeError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (ReplicaLostError, grpc.StatusCode.UNAVAILABLE),
    (DeadlineError, grpc.StatusCode.DEADLINE_EXCEEDED),
    (RequestCancelledError, grpc.StatusCode.CANCELLED),
    (DyOrcError, grpc.StatusCode.INTERNAL),
)


def status_of(error: DyOrcError) -> grpc.StatusCode:
    """Returns the gRPC status of an error."""
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def as_dyorc_error(error: Exception, call: str, ids: Ids) -> DyOrcError:
    """Returns the error to show to the client. Logs failures of the server; foreign errors become a plain internal error."""
    if not isinstance(error, DyOrcError):
        _log.error("request_crashed", call=call, exc_info=error, **ids.facts)
        return InternalError("internal error")
    if status_of(error) is grpc.StatusCode.INTERNAL:
        _log.warning("request_failed", call=call, error=str(error), **ids.facts)
    return error


def text_of(error: DyOrcError) -> str:
    """Returns its text, short enough for a header."""
    text = str(error).encode(errors="replace")
    return text[:_MAX_TEXT_BYTES].decode(errors="ignore")


def metadata_of(error: DyOrcError, ids: Ids) -> tuple[tuple[str, str], ...]:
    """Returns the trailing metadata of an error: its code, whether and when to send the request again, and the request's ids."""
    metadata = [
        (GRPC_CODE, error.code),
        (GRPC_RETRYABLE, "true" if error.retryable else "false"),
        (REQUEST_ID, ids.request_id),
    ]
    if error.retry_after_s is not None:
        metadata.append((GRPC_RETRY_MS, str(max(1, round(error.retry_after_s * 1000)))))
    if trace_id := ids.trace_id:
        metadata.append((GRPC_TRACE_ID, trace_id))
    return tuple(metadata)


async def refuse(context: Any, error: Exception, call: str, ids: Ids) -> NoReturn:
    """Ends a call with an error.

    Args:
        context: The call's.
        call: Its name, for the log.
        ids: Of its request.
    """
    shown = as_dyorc_error(error, call, ids)
    await context.abort(status_of(shown), text_of(shown), metadata_of(shown, ids))
    raise asyncio.CancelledError  # `abort` has raised already
