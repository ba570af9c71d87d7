"""Messages as bytes: large values are cut out of requests and joined to responses without protobuf copying them.

A protobuf message is a sequence of fields; each has a number, a kind and a value. The tensors of a request are values of the
field `raw_input_contents`, and protobuf would copy each twice before NumPy could read it. So they are cut out first, as views of
the message, and protobuf reads the rest. Responses are joined in the same way: protobuf writes the head, and the tensors follow
it.
"""

from collections.abc import Sequence
from typing import TypeAlias

from dyorc.errors import InvalidInputError

Buffer: TypeAlias = bytes | memoryview

_MAX_FIELDS = 10_000
"""Far more than any sensible request has. Each field costs a turn of a loop in Python, and a message has room for millions."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Kinds of fields: the lowest three bits of their tag."""

_MAX_VARINT_BYTES = 10
_RAW_INPUTS = 7 << 3 | _BYTES
_RAW_OUTPUTS = bytes([6 << 3 | _BYTES])
_STREAMED_RESPONSE = bytes([2 << 3 | _BYTES])


def split(message: bytes) -> tuple[bytes, list[memoryview]]:
    """Splits a `ModelInferRequest` into its `raw_input_contents`, as views, and everything else.

    Raises:
        InvalidInputError: If the message is not a sequence of fields.
    """
    view = memoryview(message)
    raws: list[memoryview] = []
    rest: list[Buffer] = []
    at = start = num_fields = 0  # bytes from `start` on are not assigned yet
    while at < len(view):
        num_fields += 1
        if num_fields > _MAX_FIELDS:
            raise InvalidInputError(f"the request has more than {_MAX_FIELDS} inputs, outputs, parameters and raw_input_contents")
        value_at, end, tag = _field(view, at)
        if tag == _RAW_INPUTS:
            if start < at:
                rest.append(view[start:at])
            raws.append(view[value_at:end])
            start = end
        at = end
    if not raws:
        return message, raws
    rest.append(view[start:])
    return b"".join(rest), raws


def _field(view: memoryview, at: int) -> tuple[int, int, int]:
    """Returns for the field at byte `at` where its value begins, where it ends, and its tag (number and kind)."""
    try:
        tag = view[at]
        value_at = at + 1
        if tag > 127:
            tag, value_at = _varint(view, at)
        kind = tag & 7
        if kind == _BYTES:
            size = view[value_at]
            value_at += 1
            if size > 127:
                size, value_at = _varint(view, value_at - 1)
            end = value_at + size
        elif kind == _VARINT:
            end = _varint(view, value_at)[1]
        elif kind in (_FIXED32, _FIXED64):
            end = value_at + (4 if kind == _FIXED32 else 8)
        else:
            raise InvalidInputError(f"the request is not a ModelInferRequest: byte {at} begins a field of unknown kind {kind}")
    except IndexError:
        end = len(view) + 1
        value_at = tag = 0
    if end > len(view):
        raise InvalidInputError(f"the request is not a ModelInferRequest: the field at byte {at} of {len(view)} is cut off")
    return value_at, end, tag


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    """Returns a number, seven bits per byte, the lowest first, and where it ends.

    Raises:
        IndexError: If the message ends within it.
    """
    value = 0
    for position in range(_MAX_VARINT_BYTES):
        byte = view[at + position]
        value |= (byte & 127) << (7 * position)
        if byte < 128:
            return value, at + position + 1
    raise InvalidInputError(
        f"the request is not a ModelInferRequest: the number at byte {at} has more than {_MAX_VARINT_BYTES} bytes"
    )


def join_raw_outputs(head: bytes, raws: Sequence[Buffer]) -> list[Buffer]:
    """Returns a `ModelInferResponse` in parts: `head`, which has everything else, and its `raw_output_contents`."""
    parts: list[Buffer] = [head]
    for raw in raws:
        parts += (_RAW_OUTPUTS, _length(len(raw)), raw)
    return parts


def wrap_streamed(parts: Sequence[Buffer]) -> list[Buffer]:
    """Returns a `ModelStreamInferResponse` in parts, around the parts of its `infer_response`."""
    return [_STREAMED_RESPONSE, _length(sum(map(len, parts))), *parts]


def framed(parts: Sequence[Buffer]) -> list[Buffer]:
    """Returns a message in parts as gRPC sends it: not compressed, its length in front."""
    return [b"\0" + sum(map(len, parts)).to_bytes(4) + parts[0], *parts[1:]]


def _length(number: int) -> bytes:
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)
