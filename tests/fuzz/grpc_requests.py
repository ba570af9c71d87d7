# pyright: basic
# Generated messages have no types.
"""Requests over gRPC: the bytes of a `ModelInferRequest`, cut up without protobuf, and read as the servicer does."""

from typing import Any

import numpy as np

from dyorc.errors import DyOrcError
from dyorc.gateway.client_memory import ClientMemory
from dyorc.gateway.grpc.decoding import decode_request, parse
from dyorc.gateway.grpc.wire import split
from dyorc.gateway.request_memory import RequestMemory
from dyorc.protocol.inference_pb2 import ModelInferRequest
from tests import oip_grpc
from tests.fake_backend import NoRoom
from tests.fuzz.contract import FuzzTarget, check
from tests.fuzz.request_bodies import models


class NoThreads:
    """Does long work at once."""

    async def run(self, work: Any) -> Any:
        """Returns the result of the work."""
        return work()


def _read(data: bytes) -> None:
    _, raws = split(data)
    whole = _whole(data)
    message, _ = parse(data)
    if whole is not None:
        expected = [bytes(raw) for raw in whole.raw_input_contents]
        check([bytes(raw) for raw in raws] == expected, f"the raw inputs are {raws}, expected {expected}")
        del whole.raw_input_contents[:]
        check(message == whole or message.SerializeToString() == whole.SerializeToString(), "the rest is another message")
    model = models().get(message.model_name)
    if model is None:
        return
    tensors: Any = NoRoom()
    off_loop: Any = NoThreads()
    with RequestMemory(tensors, ClientMemory(is_allowed=False), max_bytes=2**20) as memory:
        try:
            decode_request(message, raws, model, memory, off_loop).send(None)
        except StopIteration:
            return
        raise AssertionError("it waits for something")


def _whole(data: bytes) -> Any:
    """Returns what protobuf makes of a message; None if it refuses it."""
    try:
        return ModelInferRequest.FromString(data)
    except Exception:
        return None


def build() -> FuzzTarget:
    """Returns the target."""
    inputs = {
        "x": np.array([[1, 2.5]], np.float32),
        "n": np.array([1, -2], np.int64),
        "texts": np.array([b"a", b""], object),
    }
    messages = [
        oip_grpc.request("repeat", inputs),
        oip_grpc.request("repeat", inputs, typed=True),
        oip_grpc.request("same_int8", {"x": np.array([-128, 127], np.int8)}, typed=True),
        oip_grpc.request("same_bool", {"x": np.array([True, False])}),
        oip_grpc.request("same_uint64", {"x": np.array([2**64 - 1], np.uint64)}, typed=True),
    ]
    oip_grpc.set_parameters(messages[0].parameters, {"scale": 2.0, "most": 3, "is_loud": True, "label": "l", "timeout": 1000})
    output = messages[0].outputs.add(name="n")
    oip_grpc.set_parameters(output.parameters, {"classification": 2})
    return FuzzTarget(
        name="grpc_requests",
        read=_read,
        errors=(DyOrcError,),
        seeds=tuple(message.SerializeToString() for message in messages),
        words=(
            b"\x3a\x00", b"\x3a\x80\x00", b"\xba\x80\x00\x01a", b"\x3a\xff\xff\xff\xff\x0f", b"\x3b", b"\x3c", b"\x00",
            b"\xff" * 10,
            b"\x80" * 9 + b"\x01", b"\x3f", b"\x38\x01", b"\x3d\0\0\0\0", b"\x39" + bytes(8), b"\xf8\xff\xff\xff\x0f\x01",
        ),
    )  # fmt: skip
