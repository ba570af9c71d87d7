# pyright: basic
# Generated messages have no types.
"""Inputs over gRPC become the same arrays in whichever form they come, and bytes that are not a request are refused without
harm."""

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from dyorc.errors import DyOrcError, InvalidInputError
from dyorc.gateway.grpc.decoding import GrpcInputs, parse
from dyorc.gateway.grpc.wire import join_raw_outputs, split, wrap_streamed
from dyorc.protocol import inference_pb2 as pb
from tests import oip_grpc

_TYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]
_ARRAYS = st.sampled_from(_TYPES).flatmap(
    lambda kind: npst.arrays(np.dtype(kind), npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)


class NoMemory:
    """Memory for requests that need none."""

    def room(self, num_bytes: int) -> None:
        """Returns None: ordinary memory will do."""


def _read(message: bytes) -> dict[str, Any]:
    found, raws = parse(message)
    memory: Any = NoMemory()
    return GrpcInputs(found.inputs, raws, memory).arrays()


@given(st.lists(_ARRAYS, min_size=1, max_size=3))
def test_lists_of_numbers_become_the_same_arrays_as_raw_bytes(arrays: list[Any]) -> None:
    inputs = {f"x{at}": array for at, array in enumerate(arrays)}
    raw = _read(oip_grpc.request("m", inputs).SerializeToString())
    typed = _read(oip_grpc.request("m", inputs, typed=True).SerializeToString())
    for name, array in inputs.items():
        for found in (raw[name], typed[name]):
            assert (found.dtype, found.shape) == (array.dtype, array.shape)
            assert np.array_equal(found, array, equal_nan=array.dtype.kind == "f")


@given(st.lists(st.binary(max_size=300)), st.binary(max_size=20).map(lambda b: b.hex()))
def test_what_is_cut_out_and_put_back_is_the_message(raws: list[bytes], request_id: str) -> None:
    message = pb.ModelInferRequest(model_name="m", id=request_id, raw_input_contents=raws).SerializeToString()
    rest, found = split(message)
    assert [bytes(raw) for raw in found] == raws
    assert pb.ModelInferRequest.FromString(rest) == pb.ModelInferRequest(model_name="m", id=request_id)
    head = pb.ModelInferResponse(model_name="m", id=request_id)
    response = pb.ModelInferResponse(model_name="m", id=request_id, raw_output_contents=raws)
    parts = join_raw_outputs(head.SerializeToString(), raws)
    assert pb.ModelInferResponse.FromString(b"".join(parts)) == response
    assert pb.ModelStreamInferResponse.FromString(b"".join(wrap_streamed(parts))).infer_response == response


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_are_refused(message: bytes) -> None:
    try:
        _read(message)
    except InvalidInputError:
        pass
    except DyOrcError as error:
        pytest.fail(f"{type(error)}")


@given(st.data())
def test_a_request_with_changed_bytes_is_read_or_refused(data: st.DataObject) -> None:
    good = oip_grpc.request("m", {"x": np.arange(4, dtype=np.int16)}, typed=data.draw(st.booleans()))
    message = bytearray(good.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(InvalidInputError):
        _read(bytes(message))
