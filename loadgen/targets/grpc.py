"""The Open Inference Protocol (version 2) over gRPC, tensors as raw bytes.

Messages are prepared before the measurement, and answers are read after it; gRPC itself sees only bytes.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import grpc
import grpc.aio
import numpy as np
from google.protobuf.message import DecodeError

from dyorc.core.arrays import dtype_of, numpy_dtype
from dyorc.core.tensor import DType
from dyorc.errors import DyOrcError
from dyorc.protocol import inference_pb2
from dyorc.protocol.api_paths import grpc_path
from dyorc.protocol.media_types import FRAME_LENGTHS
from dyorc.protocol.raw import decode_bytes, encode_bytes
from loadgen.pool import Pool, Tensors
from loadgen.targets.base import RawAnswer, RequestFailedError, TargetSpec
from loadgen.targets.failures import plain
from loadgen.targets.layout import with_batch_dim, without_batch_dim
from loadgen.targets.part_reading import split_frames, stack_parts
from loadgen.targets.tls import grpc_address, grpc_credentials

if TYPE_CHECKING:
    from grpc.aio import Channel

pb: Any = inference_pb2
"""Its message classes are created at import, so type checkers do not know them."""
METHOD = grpc_path("ModelInfer")
STREAM_METHOD = grpc_path("ModelStreamInfer")
_BEGINS_WITH_ERROR = b"\n"
"""The tag of `ModelStreamInferResponse.error_message`, which comes first."""
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
        self._streams = [channel.stream_stream(STREAM_METHOD) for channel in self._channels]
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

    async def stream(self, index: int, on_part: Callable[[], None]) -> RawAnswer:
        """Opens a stream for this request alone, as a client does that has one request."""
        self._turn = turn = (self._turn + 1) % len(self._streams)
        frames: list[bytes] = []
        call = self._streams[turn](metadata=self._metadata)
        try:
            await call.write(self._requests[index])
            await call.done_writing()
            async for part in call:
                if part.startswith(_BEGINS_WITH_ERROR):
                    text = pb.ModelStreamInferResponse.FromString(part).error_message
                    raise RequestFailedError(f"in the stream: {plain(text)}")
                on_part()
                frames += (FRAME_LENGTHS.pack(0, len(part)), part)
        except grpc.aio.AioRpcError as error:
            raise RequestFailedError(f"gRPC {error.code().name}: {plain(error.details() or '')}") from None
        finally:
            call.cancel()
        return b"".join(frames)

    def decode(self, answer: RawAnswer) -> Tensors:
        if self._spec.is_streamed and isinstance(answer, bytes):
            parts = [decode_part(frame) for frame, _ in split_frames(answer)]
            return stack_parts([without_batch_dim(part) for part in parts] if self._has_batch_dim else parts)
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
        return _tensors_of(pb.ModelInferResponse.FromString(answer))
    except DecodeError as error:
        raise ValueError(f"the answer is not a ModelInferResponse: {error}") from error


def decode_part(part: memoryview) -> Tensors:
    """Returns the tensors of a `ModelStreamInferResponse`.

    Raises:
        ValueError: If it is malformed, or if its tensors are not raw bytes.
    """
    try:
        return _tensors_of(pb.ModelStreamInferResponse.FromString(bytes(part)).infer_response)
    except DecodeError as error:
        raise ValueError(f"the part is not a ModelStreamInferResponse: {error}") from error


def _tensors_of(response: Any) -> Tensors:
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
