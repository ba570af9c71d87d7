"""Reads the body of a job: all of it into memory, because it goes to the store from there."""

from fastapi import Request

from dyorc.errors import InvalidInputError
from dyorc.gateway.http.bodies import BodyReader
from dyorc.gateway.http.heads import read_head
from dyorc.gateway.service import InferenceService
from dyorc.gateway.tenants import Tenant
from dyorc.store.base import Body


async def read_body(request: Request, tenant: Tenant, service: InferenceService) -> Body:
    """Reads a job's body, which counts as in flight meanwhile.

    Raises:
        PayloadTooLargeError: If it is larger than the server takes.
        InvalidInputError: If its headers are malformed.
        CapacityError: If there is no room for it now.
        RequestCancelledError: If the client goes away.
    """
    head = read_head(request.scope["headers"], is_old=request.scope["http_version"] == "1.0")
    if head.encoding is not None:
        raise InvalidInputError(f"Content-Encoding {request.headers['content-encoding']!r} is not supported, expected none")
    reader = BodyReader(service.config.max_request_bytes)
    with service.admission.admit(tenant, reader.expected_bytes(head)) as ticket:
        data = await reader.read_all(head, request.receive, ticket)
    return Body(data, head.json_bytes)
