"""The Open Inference Protocol (version 2) over gRPC, tensors as raw bytes.

Messages are prepared before the measurement, and answers are read after it; gRPC itself sees only bytes.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Self

import grpc
import grpc.aio
import numpy as np

from dyorc.core.arrays import dtype_of, numpy_dtype
from dyorc.core.tensor import DType
from dyorc.errors import DyOrcError
from dyorc.protocol import inference_pb2
from dyorc.protocol.api_paths import grpc_path
from dyorc.protocol.raw import decode_bytes, encode_bytes
from loadgen.pool import Pool, Tensors
from loadgen.targets.base import RawAnswer, RequestFailedError, TargetSpec
from loadgen.targets.failures import plain
from loadgen.targets.layout import with_batch_dim, without_batch_dim
from loadgen.targets.tls import grpc_address, grpc_credentials

if TYPE_CHECKING:
    from grpc.aio import Channel

pb: Any = inference_pb2
"""Its message classes are created at import, so type checkers do not know them."""
METHOD = grpc_path("ModelInfer")
_NUM_CHANNELS = 4
"""A single HTTP/2 connection is slower than several, and servers allow only some hundred streams on each."""
_CONNECT_S = 10
_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]


class GrpcTarget:
    """A client of a server of the protocol.

    Raises:
        ValueError: If a request of the pool cannot be written.
    """

    def __init__(self, spec: TargetSpec, pool: Pool) -> None:
        self._spec = spec
        self._has_batch_dim = spec.has_batch_dim
        self._requests = [
            encode_request(spec.model, with_batch_dim(tensors) if spec.has_batch_dim else tensors) for tensors in pool.inputs
        ]
        self._metadata = tuple((name.lower(), value) for name, value in spec.headers.items())
        self._turn = 0

    async def __aenter__(self) -> Self:
        address, credentials = grpc_address(self._spec.url), grpc_credentials(self._spec)
        num_channels = max(1, min(_NUM_CHANNELS, self._spec.max_connections))
        self._channels: list[Channel] = [
            grpc.aio.secure_channel(address, credentials, options=_OPTIONS)
            if credentials
            else grpc.aio.insecure_channel(address, options=_OPTIONS)
            for _ in range(num_channels)
        ]
        try:
            async with asyncio.timeout(_CONNECT_S):
                await asyncio.gather(*(channel.channel_ready() for channel in self._channels))
        except TimeoutError:
            await self.__aexit__()
            raise RequestFailedError(f"no connection to {address} within {_CONNECT_S} s") from None
        self._calls = [channel.unary_unary(METHOD) for channel in self._channels]
        return self

    async def __aexit__(self, *error: object) -> None:
        for channel in self._channels:
            await channel.close()

    async def infer(self, index: int) -> RawAnswer:
        self._turn = turn = (self._turn + 1) % len(self._calls)
        try:
            return await self._calls[turn](self._requests[index], metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise RequestFailedError(f"gRPC {error.code().name}: {plain(error.details() or '')}") from None

    def decode(self, answer: RawAnswer) -> Tensors:
        tensors = decode_response(answer) if isinstance(answer, bytes) else answer
        return without_batch_dim(tensors) if self._has_batch_dim else tensors


def encode_request(model: str, tensors: Tensors) -> bytes:
    """Returns a `ModelInferRequest`.

    Raises:
        ValueError: If a tensor has a type that the protocol does not have.
    """
    request = pb.ModelInferRequest(model_name=model)
    for name, array in tensors.items():
        try:
            dtype = dtype_of(array)
        except DyOrcError as error:
            raise ValueError(f"a request to {model!r} cannot be written: {error}") from error
        request.inputs.add(name=name, datatype=dtype.value, shape=array.shape)
        raw = encode_bytes(array) if dtype is DType.BYTES else np.ascontiguousarray(array).tobytes()
        request.raw_input_contents.append(bytes(raw))
    return request.SerializeToString()


def decode_response(answer: bytes) -> Tensors:
    """Returns the tensors of a `ModelInferResponse`.

    Raises:
        ValueError: If it is malformed, or if its tensors are not raw bytes.
    """
    try:
        response = pb.ModelInferResponse.FromString(answer)
    except Exception as error:  # the exception's class differs between implementations of protobuf
        raise ValueError(f"the answer is not a ModelInferResponse: {error}") from error
    if len(response.outputs) != len(response.raw_output_contents):
        raise ValueError(f"the answer has {len(response.outputs)} outputs and {len(response.raw_output_contents)} raw contents")
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        shape = tuple(output.shape)
        try:
            dtype = DType(output.datatype)
            if dtype is DType.BYTES:
                tensors[output.name] = decode_bytes(memoryview(raw), shape)
            else:
                tensors[output.name] = np.frombuffer(raw, numpy_dtype(dtype)).reshape(shape)
        except (ValueError, DyOrcError) as error:
            raise ValueError(f"output {output.name!r} is malformed: {error}") from error
    return tensors
