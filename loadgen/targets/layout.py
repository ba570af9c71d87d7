"""Requests and answers of the Open Inference Protocol as bytes. Requests are prepared before the measurement."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from dyorc.core.arrays import dtype_of
from dyorc.errors import DyOrcError
from dyorc.protocol import media_types
from dyorc.protocol.api_paths import INFER, INFER_STREAM, model_path
from dyorc.protocol.inference_answer import parse_answer
from dyorc.protocol.inference_request import Options, infer_request
from dyorc.protocol.metadata import ModelMetadata, TensorMetadata
from loadgen.pool import Tensors
from loadgen.targets.part_reading import split_frames

JSON_BYTES = 8
"""An HTTP answer is kept after the length of its JSON, which came in a header; little-endian."""


def with_batch_dim(tensors: Tensors) -> Tensors:
    """Returns tensors with a leading batch dimension of 1."""
    return {name: array[np.newaxis] for name, array in tensors.items()}


def without_batch_dim(tensors: Tensors) -> Tensors:
    """Removes the leading batch dimension.

    Raises:
        ValueError: If there is none.
    """
    for name, array in tensors.items():
        if array.shape[:1] != (1,):
            raise ValueError(f"output {name!r} has the shape {list(array.shape)}, expected a leading batch dimension of 1")
    return {name: array[0] for name, array in tensors.items()}


def oip_request(model: str, tensors: Tensors, *, is_streamed: bool = False) -> tuple[str, tuple[tuple[str, str], ...], bytes]:
    """Returns path, headers and body of an HTTP request with its tensors as raw bytes.

    Args:
        is_streamed: Whether the answer is asked for in parts, as frames.

    Raises:
        ValueError: If a tensor has a type that the protocol does not have.
    """
    try:
        inputs = tuple(TensorMetadata(name, dtype_of(array), array.shape) for name, array in tensors.items())
        path = model_path(model, None, INFER_STREAM if is_streamed else INFER)
        request = infer_request(path, ModelMetadata(model, inputs, ()), tensors, Options())
        if is_streamed:
            request = request.with_header("accept", media_types.FRAMES)
    except DyOrcError as error:
        raise ValueError(f"a request to {model!r} cannot be written: {error}") from error
    return request.path, request.headers, b"".join(request.pieces)


def oip_answer(answer: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the tensors of an HTTP answer that follows the length of its JSON.

    Raises:
        ValueError: If it is malformed.
    """
    return _outputs(memoryview(answer)[JSON_BYTES:], int.from_bytes(answer[:JSON_BYTES], "little"))


def oip_parts(answer: bytes) -> list[Tensors]:
    """Returns the tensors of each part of an HTTP answer in frames.

    Raises:
        ValueError: If it is malformed.
    """
    return [_outputs(frame, json_bytes) for frame, json_bytes in split_frames(answer)]


def _outputs(content: memoryview, json_bytes: int) -> dict[str, np.ndarray[Any, Any]]:
    try:
        return parse_answer(content, json_bytes).outputs
    except DyOrcError as error:
        raise ValueError(str(error)) from error


def http_post(url: str, path: str, headers: Sequence[tuple[str, str]], more: Mapping[str, str], body: bytes) -> bytes:
    """Returns a whole HTTP/1.1 request. `more` headers replace those of the same name.

    Args:
        url: The server's URL; its path, if any, goes before `path`.
    """
    parts = urlsplit(url)
    lines = {"host": parts.netloc.rpartition("@")[2], "content-type": media_types.TENSORS}
    lines.update((name.lower(), value) for name, value in headers)
    lines.update((name.lower(), value) for name, value in more.items())
    lines["content-length"] = str(len(body))
    head = [f"POST {parts.path.rstrip('/')}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items()), "", ""]
    return "\r\n".join(head).encode("latin-1") + body
