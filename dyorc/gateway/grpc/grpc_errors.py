# pyright: basic
# grpcio ships no types.
"""Errors over gRPC: maps the tree of errors to status codes and metadata."""

import asyncio
from typing import Any, NoReturn

import grpc
import structlog

from dyorc import errors
from dyorc.gateway.request_ids import Ids
from dyorc.protocol.header_names import GRPC_CODE, GRPC_RETRY_MS, GRPC_RETRYABLE, GRPC_TRACE_ID, REQUEST_ID

_log = structlog.get_logger("dyorc.gateway")

_MAX_TEXT_BYTES = 2000
"""The longest error text: it travels in a header, where one byte may take three, and clients refuse headers over 8 KiB."""

# The first class that matches counts, so subclasses come before their parents.
_STATUS: tuple[tuple[type[errors.DyOrcError], grpc.StatusCode], ...] = (
    (errors.UnknownModelError, grpc.StatusCode.NOT_FOUND),
    (errors.UnknownRegionError, grpc.StatusCode.NOT_FOUND),
    (errors.UnknownJobError, grpc.StatusCode.NOT_FOUND),
    (errors.UnknownRequestError, grpc.StatusCode.NOT_FOUND),
    (errors.AuthenticationError, grpc.StatusCode.UNAUTHENTICATED),
    (errors.PermissionDeniedError, grpc.StatusCode.PERMISSION_DENIED),
    (errors.ConflictError, grpc.StatusCode.ALREADY_EXISTS),
    (errors.UnsupportedError, grpc.StatusCode.UNIMPLEMENTED),
    (errors.ClientMemoryDisabledError, grpc.StatusCode.UNIMPLEMENTED),
    (errors.ClientError, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.NotReadyError, grpc.StatusCode.UNAVAILABLE),
    (errors.OverloadedError, grpc.StatusCode.UNAVAILABLE),
    (errors.CapacityError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.AnswerTooLargeError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.ReplicaLostError, grpc.StatusCode.UNAVAILABLE),
    (errors.DeadlineError, grpc.StatusCode.DEADLINE_EXCEEDED),
    (errors.RequestCancelledError, grpc.StatusCode.CANCELLED),
    (errors.DyOrcError, grpc.StatusCode.INTERNAL),
)


def status_of(error: errors.DyOrcError) -> grpc.StatusCode:
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def as_dyorc_error(error: Exception, call: str, ids: Ids) -> errors.DyOrcError:
    """Returns the error to show to the client. Logs failures of the server; foreign errors become a plain internal error."""
    if not isinstance(error, errors.DyOrcError):
        _log.error("request_crashed", call=call, exc_info=error, **ids.facts)
        return errors.InternalError("internal error")
    if status_of(error) is grpc.StatusCode.INTERNAL:
        _log.warning("request_failed", call=call, error=str(error), **ids.facts)
    return error


def text_of(error: errors.DyOrcError) -> str:
    """Returns its text, short enough for a header."""
    text = str(error).encode(errors="replace")
    return text[:_MAX_TEXT_BYTES].decode(errors="ignore")


def metadata_of(error: errors.DyOrcError, ids: Ids) -> tuple[tuple[str, str], ...]:
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
    await context.abort(*refusal_of(error, call, ids))
    raise asyncio.CancelledError  # `abort` has raised already


def refusal_of(error: Exception, call: str, ids: Ids) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]:
    """Returns the status, the text and the metadata of an error, as `refuse` sends them."""
    shown = as_dyorc_error(error, call, ids)
    return status_of(shown), text_of(shown), metadata_of(shown, ids)
