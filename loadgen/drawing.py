"""Requests read from a file, or drawn at random to fit the model's metadata."""

import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import BadZipFile, is_zipfile

import httpx
import msgspec
import numpy as np

from dyorc.core.arrays import numpy_dtype
from dyorc.core.decode_errors import DECODE_ERRORS
from dyorc.core.tensor import FLOATS, DType
from dyorc.protocol.api_paths import grpc_path, model_path
from dyorc.protocol.metadata import ModelMetadata, TensorMetadata
from loadgen.pool import Pool, Tensors
from loadgen.targets.base import TargetSpec
from loadgen.targets.tls import grpc_address, grpc_credentials, httpx_verify

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
_TIMEOUT_S = 30.0
_MAX_INT = 10
_SHAPE = re.compile(r"\d+(,\d+)*")


def shapes_of(lines: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Returns shapes by the input's name, from strings such as ``image:1,8,8``.

    Raises:
        ValueError: If one has another form.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for line in lines:
        name, colon, sizes = line.rpartition(":")
        if not colon or not _SHAPE.fullmatch(sizes):
            raise ValueError(f"--shape is {line!r}, expected NAME:1,2,3")
        shapes[name] = tuple(int(size) for size in sizes.split(","))
    return shapes


def read_pool(path: Path) -> Pool:
    """Returns a pool from a file that `Pool.save` wrote, or with one request from an .npz that has an array for each input.

    Raises:
        ValueError: If it is neither.
    """
    if path.is_file() and not is_zipfile(path):  # NumPy would take it for a pickle, or for one array
        raise ValueError(f"{path} is no archive, expected an .npz with one array for each input, or a pool")
    try:
        with np.load(path, allow_pickle=False) as stored:
            if "about" in stored.files:
                return Pool.load(path)
            inputs = {name: stored[name] for name in stored.files}
    except (BadZipFile, EOFError, KeyError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    if not inputs:
        raise ValueError(f"{path} is empty, expected an .npz with one array for each input, or a pool")
    return Pool(inputs=[inputs])


def check_names(pool: Pool, declared: Mapping[str, int], model: str) -> None:
    """Checks that a model has the inputs of a pool.

    Args:
        declared: The rank of each input of the model; empty if the server does not describe it.

    Raises:
        ValueError: If it does not have one; names the model's.
    """
    unknown = sorted({name for tensors in pool.inputs for name in tensors} - declared.keys())
    if declared and unknown:
        raise ValueError(f"--pool holds {unknown[0]!r}, which model {model!r} does not have; its inputs are {list(declared)}")


def split_rows(pool: Pool, declared: Mapping[str, int]) -> Pool:
    """Returns a pool with a request for each row, if all arrays of its only request have one dimension more than declared.

    Args:
        declared: The rank of each input of the model.

    Raises:
        ValueError: If the arrays do not have equally many rows.
    """
    arrays = pool.inputs[0]
    if len(pool.inputs) != 1 or pool.answers or any(array.ndim != declared.get(name, -1) + 1 for name, array in arrays.items()):
        return pool
    lengths = {name: len(array) for name, array in arrays.items()}
    num_rows = next(iter(lengths.values()))
    if not num_rows or set(lengths.values()) != {num_rows}:
        raise ValueError(
            f"--pool holds requests in rows, {lengths}, expected the same number of them in each array, at least one"
        )
    return Pool(inputs=[{name: array[row] for name, array in arrays.items()} for row in range(num_rows)])


def ranks_of(spec: TargetSpec) -> dict[str, int]:
    """Returns the rank of each input without its batch dimension, by name; empty if the server does not describe the model."""
    try:
        return {tensor.name: len(tensor.shape) - spec.has_batch_dim for tensor in metadata_of(spec).inputs}
    except ValueError:
        return {}


def draw_pool(spec: TargetSpec, shapes: Shapes, *, seed: int, num_requests: int) -> Pool:
    """Returns requests of random numbers and strings, without expected answers.

    Args:
        shapes: The shapes of inputs that the model leaves open, without a batch dimension.

    Raises:
        ValueError: If the server has no metadata of the model, or if a shape that the model leaves open is not given.
    """
    inputs = metadata_of(spec).inputs
    if unknown := sorted(shapes.keys() - {tensor.name for tensor in inputs}):
        raise ValueError(f"model {spec.model!r} has no input {unknown[0]!r}, its inputs are {[tensor.name for tensor in inputs]}")
    chosen = {tensor.name: _shape(spec, tensor, shapes) for tensor in inputs}
    rng = np.random.default_rng(seed)
    return Pool(inputs=[draw(inputs, chosen, rng) for _ in range(num_requests)])


def draw(inputs: Sequence[TensorMetadata], shapes: Shapes, rng: np.random.Generator) -> Tensors:
    """Returns one request: floats are normally distributed, integers small and not negative, strings short."""
    return {tensor.name: _draw_one(tensor.datatype, shapes[tensor.name], rng) for tensor in inputs}


def _draw_one(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    if dtype is DType.BYTES:
        texts = np.empty(shape, object)
        for at in np.ndindex(shape):
            texts[at] = bytes(rng.integers(ord("a"), ord("z") + 1, rng.integers(4, 24), np.uint8))
        return texts
    if dtype in FLOATS:
        return np.asarray(rng.standard_normal(shape), dtype=numpy_dtype(dtype))
    return np.asarray(rng.integers(0, 2 if dtype is DType.BOOL else _MAX_INT, shape), dtype=numpy_dtype(dtype))


def _shape(spec: TargetSpec, tensor: TensorMetadata, shapes: Shapes) -> tuple[int, ...]:
    own = tuple(tensor.shape[1:] if spec.has_batch_dim else tensor.shape)
    shape = shapes.get(tensor.name, own)
    if len(shape) != len(own) or any(is_open not in (-1, size) for is_open, size in zip(own, shape, strict=False)):
        raise ValueError(f"--shape gives input {tensor.name!r} the shape {list(shape)}, the model expects {list(own)}")
    if -1 in shape:
        example = ",".join(str(4 if size == -1 else size) for size in shape)
        raise ValueError(
            f"input {tensor.name!r} of {spec.model!r} has the shape {list(own)}: expected e.g. --shape {tensor.name}:{example}"
        )
    return shape


def metadata_of(spec: TargetSpec) -> ModelMetadata:
    """Returns the server's metadata of the model.

    Raises:
        ValueError: If there is none.
    """
    if spec.protocol == "http":
        return _over_http(spec)
    if spec.protocol == "grpc":
        return _over_grpc(spec)
    raise ValueError(f"a server of protocol {spec.protocol!r} has no metadata to draw requests from: expected --pool FILE")


def _over_http(spec: TargetSpec) -> ModelMetadata:
    url = f"{spec.url.rstrip('/')}{model_path(spec.model, None)}"
    try:
        answer = httpx.get(url, headers=spec.headers, timeout=_TIMEOUT_S, trust_env=False, verify=httpx_verify(spec))
        if answer.status_code != 200:
            raise ValueError(f"{url} answered {answer.status_code}, expected the model's metadata: {answer.text[:200]}")
        return msgspec.json.decode(answer.content, type=ModelMetadata)
    except (httpx.HTTPError, *DECODE_ERRORS) as error:
        raise ValueError(f"{url} returned no metadata: {type(error).__name__}: {error}") from error


def _over_grpc(spec: TargetSpec) -> ModelMetadata:
    import grpc

    from loadgen.targets.grpc import pb

    headers = tuple((name.lower(), value) for name, value in spec.headers.items())
    address, credentials = grpc_address(spec.url), grpc_credentials(spec)
    with grpc.secure_channel(address, credentials) if credentials else grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(grpc_path("ModelMetadata"))
        try:
            reply = call(pb.ModelMetadataRequest(name=spec.model).SerializeToString(), timeout=_TIMEOUT_S, metadata=headers)
        except grpc.RpcError as error:
            raise ValueError(f"{spec.url} returned no metadata of {spec.model!r}: {error}") from error
    answer: Any = pb.ModelMetadataResponse.FromString(reply)
    inputs = tuple(TensorMetadata(tensor.name, DType(tensor.datatype), tuple(tensor.shape)) for tensor in answer.inputs)
    return ModelMetadata(spec.model, inputs, ())
