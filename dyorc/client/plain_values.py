"""Requests and answers of ``POST /run/NAME``: plain values as JSON, and files as bytes."""

import base64
import math
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode

import msgspec
import numpy as np

from dyorc.client.effects import Reply
from dyorc.core.arrays import as_array, dtype_of
from dyorc.core.image_files import encode_image
from dyorc.core.nested_values import leaves
from dyorc.core.tensor import DType
from dyorc.errors import InvalidInputError, TransportError
from dyorc.protocol import header_names, media_types
from dyorc.protocol.api_paths import run_path
from dyorc.protocol.inference_request import Options, PreparedRequest
from dyorc.protocol.metadata import ModelMetadata, TensorMetadata, ValueMetadata
from dyorc.protocol.raw import encode_bytes
from dyorc.protocol.wire_errors import ErrorBody, error_from_body, malformed

_RAW_BYTES = 64 * 2**10
"""A file of this length or more is a body by itself if it can be: base64 is a third longer, and has to be decoded."""
_RAW = "application/octet-stream"

_BYTES = (bytes, bytearray, memoryview)
_NUMBER_NAMES = {math.inf: "Infinity", -math.inf: "-Infinity"}

_decoder = msgspec.json.Decoder()
_error_decoder = msgspec.json.Decoder(ErrorBody)


def run_request(model: str, metadata: ModelMetadata, values: Mapping[str, Any], options: Options) -> PreparedRequest:
    """Builds a request: JSON with files and tensors as base64, or one large file as the body and the other values in the query.

    Raises:
        InvalidInputError: If a value cannot be sent as what it is, as NaN, or bytes where none are taken; names it.
    """
    path = run_path(model, options.version)
    structured = metadata.structured_values()
    tensors = {tensor.name: tensor for tensor in metadata.inputs if tensor.name not in structured}
    takers = {name for name, value in structured.items() if value.takes_bytes}
    files = {name: file for name, value in values.items() if name in takers and (file := _file_of(value, name)) is not None}
    fields = {
        name: _tensor_field(tensors[name], value) if name in tensors else _value_field(name, value, takes_bytes=name in takers)
        for name, value in values.items()
        if name not in files
    }
    heading = ((header_names.REQUEST_ID, options.request_id),) if options.request_id else ()
    if (name := _only_large_file(files, values, metadata, structured)) is not None:
        query = urlencode({key: _query_text(value) for key, value in values.items() if key != name})
        heading = (("content-type", _RAW), *heading)
        return PreparedRequest("POST", f"{path}?{query}" if query else path, heading, (files[name],))
    fields |= {name: msgspec.json.encode(_base64(file)) for name, file in files.items()}
    body = b",".join(_encode(name, name) + b":" + fields[name] for name in values)
    return PreparedRequest("POST", path, (("content-type", media_types.JSON), *heading), (b"{" + body + b"}",))


def run_answer(reply: Reply) -> Any:
    """Returns what a model returned: Python values from JSON, the `bytes` of a file.

    Raises:
        TransportError: If the answer cannot be read.
    """
    if _kind_of(reply) != media_types.JSON:
        return bytes(reply.content)
    return _read(reply.content)


class EventReader:
    """Puts server-sent events together as their bytes come.

    Args:
        max_part_bytes: The longest event that is accepted.
    """

    def __init__(self, max_part_bytes: int) -> None:
        self._max_part_bytes = max_part_bytes
        self._waiting = bytearray()

    def feed(self, chunk: bytes) -> Iterator[Any]:
        """Yields the values of the events completed by these bytes.

        Raises:
            DyOrcError: The error in an event, after the parts before it.
            TransportError: If an event is malformed, or too long.
        """
        begin = max(0, len(self._waiting) - 1)
        self._waiting += chunk
        while (end := self._waiting.find(b"\n\n", begin)) >= 0:
            event = bytes(self._waiting[:end])
            del self._waiting[: end + 2]
            begin = 0
            yield _value_of(event)
        if len(self._waiting) > self._max_part_bytes:
            raise malformed(f"a part of the stream is longer than the {self._max_part_bytes} bytes that the client takes")

    def finish(self) -> None:
        """Checks that the stream may end here.

        Raises:
            TransportError: If an event is not complete.
        """
        if self._waiting:
            raise TransportError("the stream ended within a part")


def check_events(reply: Reply) -> None:
    """Checks that an answer is a stream of events.

    Raises:
        TransportError: If it is not.
    """
    if (kind := _kind_of(reply)) != media_types.EVENTS:
        raise malformed(f"the server answered a stream with {kind!r}, expected {media_types.EVENTS!r}")


def _kind_of(reply: Reply) -> str:
    return reply.headers.get("content-type", "").partition(";")[0].strip().lower()


def _value_of(event: bytes) -> Any:
    lines = event.split(b"\n")
    data = b"".join(line[6:] for line in lines if line.startswith(b"data: "))
    if b"event: error" not in lines:
        return _read(data)
    try:
        error = _error_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise malformed(f"the error in the stream is malformed: {problem}") from problem
    raise error_from_body(error)


def _read(data: bytes | memoryview) -> Any:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(f"the answer's JSON is malformed: {error}") from error


def _file_of(value: Any, name: str) -> bytes | memoryview | None:
    """Returns the bytes of a file or picture; None for other values."""
    if isinstance(value, bytes | bytearray | memoryview):
        return value if isinstance(value, bytes) else memoryview(value).cast("B")
    if (images := sys.modules.get("PIL.Image")) is not None and isinstance(value, images.Image):
        return encode_image(value, repr(name))
    is_file = isinstance(getattr(value, "data", None), bytes) and isinstance(getattr(value, "content_type", None), str)
    return value.data if is_file else None  # a `dyorc.File`, which the client does not import


def _base64(file: bytes | memoryview) -> str:
    return base64.b64encode(file).decode()


def _only_large_file(
    files: Mapping[str, Any], values: Mapping[str, Any], metadata: ModelMetadata, structured: Mapping[str, ValueMetadata]
) -> str | None:
    """Returns the name of the file that may be the whole body.

    That is clear to the server only if the model takes no other input that could be a file, and if the query can carry the rest.
    """
    takes = [tensor.name for tensor in metadata.inputs if tensor.datatype is DType.BYTES]
    if len(files) != 1 or takes != list(files) or structured[takes[0]].content == "json":
        return None
    name = takes[0]
    is_rest_simple = all(isinstance(value, str | bool | int | float) for key, value in values.items() if key != name)
    return name if len(files[name]) >= _RAW_BYTES and is_rest_simple else None


def _query_text(value: str | bool | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _encode(name: str, value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _refusal(name, value, error) from error


def _refusal(name: str, value: Any, error: Exception) -> InvalidInputError:
    return InvalidInputError(f"{name!r} is {type(value).__name__}, which cannot be written as JSON: {error}")


def _tensor_field(tensor: TensorMetadata, value: Any) -> bytes:
    """Returns a tensor by its raw bytes, which keep its shape, NaN and what else JSON does not have."""
    if isinstance(value, list | tuple) and not value:
        return b"[]"  # of any rank; the server knows the declared one
    label = repr(tensor.name)
    if tensor.datatype is DType.BYTES and (file := _file_of(value, tensor.name)) is not None:
        value = bytes(file)
    array = as_array(value, tensor.datatype, label)
    if dtype_of(array) is not tensor.datatype:
        array = as_array(array.tolist(), tensor.datatype, label).reshape(array.shape)
    raw = encode_bytes(array) if tensor.datatype is DType.BYTES else array.tobytes()
    return msgspec.json.encode({"datatype": tensor.datatype, "shape": array.shape, "base64": _base64(raw)})


def _value_field(name: str, value: Any, *, takes_bytes: bool) -> bytes:
    """Returns a parameter that is no tensor as JSON."""
    try:
        plain = msgspec.to_builtins(value, enc_hook=partial(_plain, name), builtin_types=_BYTES)
    except InvalidInputError:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _refusal(name, value, error) from error
    _check_parts(name, plain, takes_bytes)
    return _encode(name, plain)


def _check_parts(name: str, plain: Any, takes_bytes: bool) -> None:
    """Refuses what msgspec would write as something else without a word: NaN as null, bytes as base64."""
    for part in leaves(plain, with_keys=True):
        if isinstance(part, float) and not math.isfinite(part):
            raise InvalidInputError(
                f"{name!r} holds {_NUMBER_NAMES.get(part, 'NaN')}, which JSON does not have; expected finite numbers, or in a "
                f"structured value the text {_NUMBER_NAMES.get(part, 'NaN')!r}, which its floats read"
            )
        elif isinstance(part, _BYTES) and not takes_bytes:
            shown = repr(bytes(part[:20]))
            raise InvalidInputError(
                f"{name!r} holds bytes, {shown}, but takes none; expected JSON, where a text is value.decode() and a type with "
                f"bytes is declared, as dict[str, bytes]"
            )


def _plain(name: str, value: Any) -> Any:
    """Returns what JSON can carry of a value that msgspec does not know."""
    if (file := _file_of(value, name)) is not None:
        return bytes(file)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if hasattr(value, "model_dump"):
        if value.model_config.get("ser_json_inf_nan") == "strings":
            return _decoder.decode(value.model_dump_json())
        return value.model_dump(mode="json")
    if hasattr(value, "detach") and hasattr(value, "tolist"):  # a torch tensor
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no plain value")
