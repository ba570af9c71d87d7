"""Answers as NumPy arrays, which are views of the bytes that came."""

import math
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from dyorc.core.arrays import Array, numpy_dtype
from dyorc.core.tensor import ITEM_BYTES, DType, Shape
from dyorc.errors import TransportError
from dyorc.protocol.parameter_names import BINARY_DATA_SIZE, EXPLAIN
from dyorc.protocol.raw import MAX_RANK, MAX_SIZE, decode_bytes
from dyorc.protocol.wire_errors import malformed

ALIGN_BYTES = 16
"""Tensors behind the JSON begin at a multiple of this, so that nothing has to read them byte by byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A model's answer, with everything the server sent.

    Attributes:
        outputs: Arrays by name, in the order in which they came. They can be written to, and share one piece of memory.
        parameters: The protocol's response parameters.
    """

    outputs: dict[str, Array]
    model_name: str = ""
    model_version: str = ""
    request_id: str = ""
    parameters: dict[str, Any]

    @property
    def value(self) -> Any:
        """The only output's array; the dict of arrays if there are several."""
        return next(iter(self.outputs.values())) if len(self.outputs) == 1 else self.outputs

    @property
    def explain(self) -> list[dict[str, Any]]:
        """The steps of the request and their reasons; empty unless asked for."""
        return self.parameters.get(EXPLAIN, [])


class _Output(msgspec.Struct):
    name: str
    datatype: DType
    shape: tuple[int, ...]
    parameters: dict[str, Any] = {}
    data: Any = msgspec.UNSET


class _Head(msgspec.Struct):
    outputs: list[_Output]
    model_name: str = ""
    model_version: str = ""
    id: str = ""
    parameters: dict[str, Any] = {}


_decoder = msgspec.json.Decoder(_Head)


def padding(json_bytes: int) -> int:
    """Returns how many bytes to leave free before JSON of this length, so that what follows is aligned."""
    return -json_bytes % ALIGN_BYTES


def parse_answer(content: memoryview, json_bytes: int) -> Answer:
    """Parses an answer of the protocol.

    Args:
        content: The JSON and, behind it, raw tensors.

    Raises:
        TransportError: If it is malformed or contradicts itself.
    """
    if not 0 <= json_bytes <= len(content):
        raise malformed(f"the answer says that its JSON has {json_bytes} bytes, it has {len(content)} in all")
    try:
        head = _decoder.decode(content[:json_bytes])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(f"the answer's JSON is malformed: {error}") from error
    outputs: dict[str, Array] = {}
    at = json_bytes
    for output in head.outputs:
        _check_shape(output)
        size = output.parameters.get(BINARY_DATA_SIZE)
        if size is None:
            outputs[output.name] = _from_json(output)
            continue
        if type(size) is not int or not 0 <= size <= len(content) - at:
            raise malformed(f"output {output.name!r} says it has {size!r} bytes, {len(content) - at} are left in the answer")
        outputs[output.name] = _from_bytes(output, content[at : at + size])
        at += size
    if at != len(content) or len(outputs) != len(head.outputs):
        raise malformed(f"the answer has {len(content) - at} bytes and {len(head.outputs) - len(outputs)} names too many")
    return Answer(
        outputs=outputs,
        model_name=head.model_name,
        model_version=head.model_version,
        request_id=head.id,
        parameters=head.parameters,
    )


def _check_shape(output: _Output) -> None:
    if len(output.shape) > MAX_RANK or any(not 0 <= size <= MAX_SIZE for size in output.shape):
        raise malformed(f"output {output.name!r} has a shape of {len(output.shape)} sizes, expected at most {MAX_RANK} from 0 on")


def _from_bytes(output: _Output, raw: memoryview) -> Array:
    if output.datatype is DType.BYTES:
        try:
            return decode_bytes(raw, output.shape)
        except TransportError as error:
            raise malformed(f"output {output.name!r}: {error}") from error
    expected = math.prod(output.shape) * ITEM_BYTES[output.datatype]
    if len(raw) != expected:
        raise malformed(f"output {output.name!r} has {len(raw)} bytes, {output.datatype}{list(output.shape)} has {expected}")
    return _reshaped(output.name, np.frombuffer(raw, numpy_dtype(output.datatype)), output.shape)


def _from_json(output: _Output) -> Array:
    """Converts JSON data, nested or flat; null means a number that JSON cannot carry."""
    if not isinstance(output.data, list):
        raise malformed(f"output {output.name!r} has neither data nor binary_data_size")
    try:
        if output.datatype is DType.BYTES:
            texts = np.array(output.data, dtype=object).reshape(-1).tolist()
            flat = np.empty(len(texts), dtype=object)
            flat[:] = [text.encode() for text in texts]
        else:
            flat = np.array(output.data, dtype=numpy_dtype(output.datatype)).reshape(-1)
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise malformed(
            f"the data of output {output.name!r} is not an evenly nested list of {output.datatype}: {error}"
        ) from error
    return _reshaped(output.name, flat, output.shape)


def _reshaped(name: str, flat: Array, shape: Shape) -> Array:
    try:
        return flat.reshape(shape)
    except ValueError as error:
        raise malformed(f"output {name!r} has {flat.size} elements, which cannot have the shape {list(shape)}") from error
