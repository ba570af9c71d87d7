"""Small JSON bodies of the control routes."""

from typing import TypeVar

import msgspec
from fastapi import Request
from starlette.requests import ClientDisconnect

from dyorc.errors import InvalidInputError, PayloadTooLargeError, RequestCancelledError

T = TypeVar("T")

_MAX_BODY_BYTES = 64 * 2**10


async def read_json(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    """Reads the body of a request; an empty one counts as an object without fields.

    Raises:
        InvalidInputError: If the decoder refuses it.
        PayloadTooLargeError: If it is longer than 64 KiB.
        RequestCancelledError: If the client went away.
    """
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > _MAX_BODY_BYTES:
                raise PayloadTooLargeError(f"the request's body is longer than {_MAX_BODY_BYTES} bytes")
    except ClientDisconnect:
        raise RequestCancelledError("the client went away while sending its request") from None
    try:
        return decoder.decode(body or b"{}")
    except RecursionError as error:
        raise InvalidInputError("the request's JSON is nested too deeply") from error
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"the request's JSON is malformed: {error}") from error
