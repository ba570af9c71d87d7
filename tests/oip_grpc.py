# pyright: basic
# Generated messages and stubs have no types.
"""A client's side of the Open Inference Protocol over gRPC."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc
import numpy as np

from dyorc.protocol import inference_pb2 as pb
from dyorc.protocol.inference_pb2_grpc import GRPCInferenceServiceStub
from tests import oip

METHOD = "/inference.GRPCInferenceService/"

_KINDS = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
_FIELDS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
    "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


@contextlib.asynccontextmanager
async def connected(address: str, **options: Any) -> AsyncIterator[Any]:
    """Yields a stub with a connection of its own, and as its `channel` what it talks through."""
    limits = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    async with grpc.aio.insecure_channel(address, options=limits, **options) as channel:
        stub = GRPCInferenceServiceStub(channel)
        stub.channel = channel
        yield stub


def set_parameters(parameters: Any, values: Mapping[str, Any]) -> None:
    """Fills a message's parameters; a value may be a pair of the field and what it holds."""
    for name, value in values.items():
        kind, held = value if isinstance(value, tuple) else (_KINDS[type(value)], value)
        setattr(parameters[name], kind, held)


def request(model: str, inputs: Mapping[str, oip.Array], *, typed: bool = False, request_id: str = "", **parameters: Any) -> Any:
    """Returns a request with its inputs as raw bytes, or as lists of numbers."""
    found = pb.ModelInferRequest(model_name=model, id=request_id)
    for name, array in inputs.items():
        tensor = found.inputs.add(name=name, datatype=oip.datatype_of(array), shape=array.shape)
        if typed:
            getattr(tensor.contents, _FIELDS[tensor.datatype]).extend(array.reshape(-1).tolist())
            tensor.contents.SetInParent()
        else:
            found.raw_input_contents.append(oip.raw_bytes(array))
    set_parameters(found.parameters, parameters)
    return found


def outputs_of(response: Any) -> dict[str, oip.Array]:
    """Returns the outputs of a response, by name.

    Raises:
        AssertionError: If there is not one raw entry for each.
    """
    assert len(response.raw_output_contents) == len(response.outputs)
    found: dict[str, oip.Array] = {}
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        assert not output.HasField("contents")
        found[output.name] = oip.array_of(output.datatype, list(output.shape), raw)
    return found


def same(found: oip.Array, expected: oip.Array) -> bool:
    """Returns whether type, shape and elements are equal."""
    return (found.dtype, found.shape) == (expected.dtype, expected.shape) and bool(
        found.tolist() == expected.tolist() if found.dtype == object else np.array_equal(found, expected)
    )


class Refused(Exception):
    """A call that failed: its status, its text, and what its trailing metadata says."""

    def __init__(self, error: Any) -> None:
        super().__init__(f"{error.code().name}: {error.details()}")
        metadata = dict(error.trailing_metadata())
        self.status = error.code().name
        self.text = error.details()
        self.code = metadata.get("dyorc-code")
        self.is_retryable = metadata.get("dyorc-retryable")
        self.request_id = metadata.get("x-request-id")
        self.retry_ms = metadata.get("grpc-retry-pushback-ms")


async def refused(call: Any) -> Refused:
    """Returns why a call failed.

    Raises:
        AssertionError: If it did not.
    """
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return Refused(error)
    raise AssertionError(f"the call succeeded: {str(answer)[:500]}")
