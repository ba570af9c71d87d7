"""Errors in the form of OpenAI's API."""

from typing import Any

import msgspec

from dyorc.errors import DyOrcError, UnknownModelError
from dyorc.gateway.codec.http_errors import status_of

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "invalid_request_error", 429: "rate_limit_error"}


class OpenAiFault(Exception):
    """A request that the door itself refuses.

    Attributes:
        param: The field at fault.
        status: Of HTTP.
    """

    def __init__(self, message: str, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.status = status


def openai_status(error: Exception) -> int:
    """Returns the HTTP status of an error."""
    if isinstance(error, OpenAiFault):
        return error.status
    return status_of(error) if isinstance(error, DyOrcError) else 500


def openai_error(error: Exception) -> bytes:
    """Returns the JSON of an error."""
    status = openai_status(error)
    code: str | None = error.code if isinstance(error, DyOrcError) else None
    if isinstance(error, UnknownModelError):
        code = "model_not_found"
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return error_json(text_of_error(error), kind, code, getattr(error, "param", None))


def text_of_error(error: Exception) -> str:
    """Returns what clients read of an error: nothing of a foreign one."""
    return str(error) if isinstance(error, DyOrcError | OpenAiFault) else "the server failed"


def error_json(message: str, kind: str, code: str | None = None, param: Any = None) -> bytes:
    """Returns the JSON of an error, from its fields."""
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": code}})
