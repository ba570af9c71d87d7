"""JSON objects in bodies of requests, whose fields only the reader knows."""

from typing import Any

import msgspec

from dyorc.errors import InvalidInputError
from dyorc.protocol.wire_errors import reason_of_json

_decoder = msgspec.json.Decoder(dict[str, Any])


def read_object(body: bytes | memoryview, advice: str = "") -> dict[str, Any]:
    """Returns the fields of a body.

    Args:
        advice: Follows what is wrong, in the error's text.

    Raises:
        InvalidInputError: If it is not a JSON object, or nested too deeply.
    """
    try:
        return _decoder.decode(body)
    except RecursionError as error:
        raise InvalidInputError("the request's JSON is nested too deeply") from error
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        reason = reason_of_json(error)
        if "truncated" in reason and bytes(body).rstrip().endswith(b"}"):
            reason = "JSON is malformed: it does not end, or a text holds half of a surrogate pair"
        raise InvalidInputError(f"the request's {reason}{advice}") from error
