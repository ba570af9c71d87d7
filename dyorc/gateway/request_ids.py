"""Where a request's ids stand in what comes and goes."""

from collections.abc import Iterable
from typing import Any

from dyorc.core.trace_context import TraceContext
from dyorc.gateway.ids import Ids, new_request_id, usable
from dyorc.gateway.traceparents import caller_in_headers, caller_in_metadata
from dyorc.protocol.header_names import REQUEST_ID, Header

_REQUEST_ID = REQUEST_ID.encode()


def ids_in_headers(headers: Iterable[Header]) -> Ids:
    """Returns what the head of an HTTP request says, with names of headers in lower case; with an id of ours if it has none."""
    given = next((usable(value.decode("latin-1")) for name, value in headers if name == _REQUEST_ID), "")
    return _ids(given, caller_in_headers(headers))


def ids_in_metadata(context: Any) -> Ids:
    """Returns the same for a gRPC call."""
    metadata = context.invocation_metadata() or ()
    given = next((usable(value) for name, value in metadata if name == REQUEST_ID), "")
    return _ids(given, caller_in_metadata(metadata))


def _ids(given: str, caller: TraceContext | None) -> Ids:
    return Ids(given or new_request_id(), "" if caller is None else caller.trace_id, is_given=bool(given), caller=caller)


def header_of(ids: Ids) -> Header:
    """Returns the header of an answer that names its request."""
    return _REQUEST_ID, ids.request_id.encode()


def id_line(ids: Ids) -> bytes:
    """Returns the same, encoded."""
    return b"%b: %b\r\n" % header_of(ids)
