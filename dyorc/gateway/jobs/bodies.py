"""Reads the body of a job: all of it into memory, since that is where it goes to the store from."""

from fastapi import Request
from starlette.requests import ClientDisconnect

from dyorc.errors import InvalidInputError, PayloadTooLargeError, RequestCancelledError
from dyorc.gateway.service import InferenceService
from dyorc.gateway.tenants import Tenant
from dyorc.store.base import Body

_MAX_DRAIN_RATIO = 4
"""Of a body that is too large, up to this many times the limit is read and thrown away, so that the client reads the answer."""

_MAX_LENGTH_DIGITS = 18
"""Of a length in a header; Python refuses to read numbers of thousands of digits."""


async def read_body(request: Request, tenant: Tenant, service: InferenceService) -> Body:
    """A job's body. It counts as in flight while it is read.

    Raises:
        PayloadTooLargeError: If it is larger than the server takes.
        InvalidInputError: If its headers are malformed.
        CapacityError: If there is no room for it now.
        RequestCancelledError: If the client goes away.
    """
    json_bytes = _length(request, "inference-header-content-length")
    announced = _length(request, "content-length")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise InvalidInputError(f"Content-Encoding {request.headers['content-encoding']!r} is not supported, expected none")
    limit = service.config.max_request_bytes
    found = bytearray()
    num_bytes = 0
    with service.admission.admit(tenant, min(announced or 0, limit)) as ticket:
        try:
            async for part in request.stream():
                num_bytes += len(part)
                if num_bytes > limit * _MAX_DRAIN_RATIO:
                    break
                if num_bytes <= limit:
                    if announced is None:
                        ticket.grow(len(part))
                    found += part
        except ClientDisconnect as error:
            raise RequestCancelledError("the client went away while it sent its request") from error
    if num_bytes > limit:
        raise PayloadTooLargeError(f"the job's body has {max(announced or 0, num_bytes)} bytes, the limit is {limit}")
    return Body(bytes(found), json_bytes)


def _length(request: Request, name: str) -> int | None:
    value = request.headers.get(name)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit()) or len(value) > _MAX_LENGTH_DIGITS:
        raise InvalidInputError(f"{name.title()} is {value[:_MAX_LENGTH_DIGITS]!r}, expected a number of bytes")
    return int(value)
