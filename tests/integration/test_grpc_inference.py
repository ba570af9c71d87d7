# pyright: basic
# Generated messages and stubs have no types.
"""`ModelInfer` over gRPC: every form of input and output, and every refusal."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest

from dyorc.config import GatewayConfig
from dyorc.errors import CapacityError, TenantLimitError
from dyorc.gateway.admission import Ticket
from dyorc.protocol import inference_pb2 as pb
from tests import oip_grpc
from tests.deadlines import wait_until_async
from tests.integration.grpc_servers import GRPC_SERVERS
from tests.integration.stack import Stack, running
from tests.shared_folders import shared_object
from tests.workflows import arithmetic, every_type, slow, tensors

TARGETS = [tensors.echo, tensors.affine, tensors.shift, arithmetic.sums, slow.gated, *every_type.same.values()]
MAX_BYTES = 4 * 2**20
X = np.array([1.5, 2.5, 3.5, 4.5], np.float32)
INDEX = np.array([3, 0], np.int64)
TEXTS = np.array([b"plain", b"\x00\xff no text", b""], dtype=object)
ARRAYS = {
    "BOOL": np.array([[True], [False]]),
    "INT8": np.array([-128, 127], np.int8),
    "INT16": np.array([-(2**15), 2**15 - 1], np.int16),
    "INT32": np.array([-(2**31), 2**31 - 1], np.int32),
    "INT64": np.array([-(2**63), 2**63 - 1], np.int64),
    "UINT8": np.array([0, 255], np.uint8),
    "UINT16": np.array([0, 2**16 - 1], np.uint16),
    "UINT32": np.array([0, 2**32 - 1], np.uint32),
    "UINT64": np.array([0, 2**64 - 1], np.uint64),
    "FP16": np.array([1.5, 65504, np.inf], np.float16),
    "BF16": np.array([1, -3, 1e30], ml_dtypes.bfloat16),
    "FP32": np.array([1e-45, -0.0, np.inf], np.float32),
    "FP64": np.array([[1e300, 5e-324]]),
    "BYTES": TEXTS,
}


@pytest.fixture(scope="module", params=GRPC_SERVERS)
async def stack(leaves_nothing: None, request: pytest.FixtureRequest) -> AsyncIterator[Stack]:
    """Starts one server for this module."""
    gateway = GatewayConfig(
        port=0, drain_timeout_s=1, max_request_bytes=MAX_BYTES, allow_client_shm=True, grpc_server=request.param
    )
    async with running(TARGETS, gateway=gateway, grpc=True) as found:
        yield found


@pytest.fixture(scope="module")
async def stub(stack: Stack) -> AsyncIterator[Any]:
    """Opens one connection."""
    async with oip_grpc.connected(stack.grpc_address) as found:
        yield found


def affine(**parameters: Any) -> Any:
    """Returns a good request."""
    return oip_grpc.request("affine", {"x": X, "index": INDEX}, **parameters)


@pytest.mark.parametrize("datatype", ARRAYS)
@pytest.mark.parametrize("typed", [False, True], ids=["raw", "typed"])
async def test_every_type_survives_both_ways_in(stub: Any, datatype: str, typed: bool) -> None:
    if typed and datatype in ("FP16", "BF16"):
        pytest.skip("there are no lists of these")
    for array in (ARRAYS[datatype], ARRAYS[datatype][:1], ARRAYS[datatype][:0]):
        request = oip_grpc.request(f"same_{datatype.lower()}", {"x": array}, typed=typed, request_id="a-7")
        response = await stub.ModelInfer(request)
        assert (response.model_name, response.model_version, response.id) == (f"same_{datatype.lower()}", "1", "a-7")
        assert oip_grpc.same(oip_grpc.outputs_of(response)["output"], array)


async def test_outputs_come_in_the_order_asked_for(stub: Any) -> None:
    inputs = {
        "flags": np.array([True]), "halves": np.array([2], np.float16), "brains": np.array([1], ml_dtypes.bfloat16),
        "texts": TEXTS, "image": np.arange(6, dtype=np.uint8).reshape(2, 3),
    }  # fmt: skip
    request = oip_grpc.request("echo", inputs)
    for name in ("transposed", "reversed", "negated"):
        request.outputs.add(name=name)
    found = oip_grpc.outputs_of(await stub.ModelInfer(request))
    assert list(found) == ["transposed", "reversed", "negated"]
    assert found["transposed"].tolist() == inputs["image"].T.tolist()
    assert found["reversed"].tolist() == [text[::-1] for text in TEXTS]
    del request.outputs[:]
    assert list(oip_grpc.outputs_of(await stub.ModelInfer(request))) == ["negated", "halved", "doubled", "reversed", "transposed"]


async def test_an_output_may_be_asked_for_as_its_highest_classes(stub: Any) -> None:
    request = oip_grpc.request("same_fp32", {"x": np.array([0.5, 3, -1, 3], np.float32)})
    request.outputs.add(name="output").parameters["classification"].int64_param = 3
    response = await stub.ModelInfer(request)
    assert [(one.datatype, list(one.shape)) for one in response.outputs] == [("BYTES", [3])]
    assert oip_grpc.outputs_of(response)["output"].tolist() == [b"3.0:1", b"3.0:3", b"0.5:0"]
    request.outputs[0].parameters["classification"].string_param = "three"
    assert "expected a number of classes" in (await oip_grpc.refused(stub.ModelInfer(request))).text


@pytest.mark.parametrize("num", [1000, 4096, 4097, 500_000])
async def test_tensors_of_any_size_are_right(stub: Any, stack: Stack, num: int) -> None:
    x = np.arange(num, dtype=np.float32)
    for typed in (False, True):
        found = oip_grpc.outputs_of(await stub.ModelInfer(oip_grpc.request("same_fp32", {"x": x}, typed=typed)))
        assert oip_grpc.same(found["output"], x)
    await wait_until_async(lambda: stack.orchestrator.tensors.report()["num_blocks"] == 0, "the arena is empty again")


async def test_parameters_are_those_of_the_protocol_and_of_the_model(stub: Any) -> None:
    for factor in (2.5, ("double_param", 2.5)):
        answer = await stub.ModelInfer(affine(factor=factor, priority=("uint64_param", 1), timeout=10_000_000))
        np.testing.assert_array_equal(oip_grpc.outputs_of(answer)["output"], X[INDEX] * np.float32(2.5))
    shifted = await stub.ModelInfer(oip_grpc.request("shift", {"x": X}, by=3, label="a"))
    np.testing.assert_array_equal(oip_grpc.outputs_of(shifted)["output"], X + 3)
    explained = await stub.ModelInfer(affine(explain=True))
    assert '"' in explained.parameters["explain"].string_param


async def test_a_body_and_a_version_may_come_in_any_order_of_fields(stub: Any) -> None:
    request = affine(request_id="8")
    raws = list(request.raw_input_contents)
    del request.raw_input_contents[:]
    first = pb.ModelInferRequest(raw_input_contents=raws[:1]).SerializeToString()
    last = pb.ModelInferRequest(raw_input_contents=raws[1:]).SerializeToString()
    request.model_version = "1"
    call = stub.channel.unary_unary(f"{oip_grpc.METHOD}ModelInfer", response_deserializer=pb.ModelInferResponse.FromString)
    answer = await call(first + request.SerializeToString() + last)
    np.testing.assert_array_equal(oip_grpc.outputs_of(answer)["output"], X[INDEX])
    assert answer.id == "8"


async def test_compressed_messages_are_read(stack: Stack) -> None:
    for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        async with oip_grpc.connected(stack.grpc_address, compression=compression) as stub:
            np.testing.assert_array_equal(oip_grpc.outputs_of(await stub.ModelInfer(affine()))["output"], X[INDEX])


# Refusals


def edited(edit: Any) -> Any:
    """Returns a good request after `edit`."""
    request = affine()
    edit(request)
    return request


def typed(edit: Any) -> Any:
    """Returns a good request with lists of numbers after `edit`."""
    request = oip_grpc.request("affine", {"x": X, "index": INDEX}, typed=True)
    edit(request)
    return request


BAD: dict[str, tuple[Any, str, str]] = {
    "no such model": (edited(lambda r: setattr(r, "model_name", "nix")), "NOT_FOUND", "unknown model 'nix'"),
    "no such version": (edited(lambda r: setattr(r, "model_version", "2")), "NOT_FOUND", "no version '2'"),
    "no such input": (edited(lambda r: setattr(r.inputs[0], "name", "y")), "INVALID_ARGUMENT", "no input 'y'"),
    "input missing": (edited(lambda r: (r.inputs.pop(), r.raw_input_contents.pop())), "INVALID_ARGUMENT", "'index'"),
    "input twice": (edited(lambda r: setattr(r.inputs[1], "name", "x")), "INVALID_ARGUMENT", "'x' was given twice"),
    "no such type": (edited(lambda r: setattr(r.inputs[0], "datatype", "FP8")), "INVALID_ARGUMENT", "datatype 'FP8'"),
    "other type": (edited(lambda r: setattr(r.inputs[0], "datatype", "INT32")), "INVALID_ARGUMENT", "INT32"),
    "other shape": (edited(lambda r: r.inputs[0].shape.__setitem__(0, 2)), "INVALID_ARGUMENT", "16 bytes, FP32[2] has 8"),
    "negative shape": (edited(lambda r: r.inputs[0].shape.__setitem__(0, -4)), "INVALID_ARGUMENT", "shape [-4]"),
    "many dims": (edited(lambda r: r.inputs[0].shape.extend([1] * 100)), "INVALID_ARGUMENT", "at most 64 sizes"),
    "raw too few": (edited(lambda r: r.raw_input_contents.pop()), "INVALID_ARGUMENT", "input 'index' has no raw_input_contents"),
    "raw too many": (edited(lambda r: r.raw_input_contents.append(b"")), "INVALID_ARGUMENT", "3 raw_input_contents for 2 inputs"),
    "raw too short": (edited(lambda r: r.raw_input_contents.__setitem__(0, b"abc")), "INVALID_ARGUMENT", "3 bytes"),
    "raw and typed": (edited(lambda r: r.inputs[0].contents.fp32_contents.append(1)), "INVALID_ARGUMENT", "as well as"),
    "nothing at all": (edited(lambda r: r.ClearField("raw_input_contents")), "INVALID_ARGUMENT", "neither contents nor raw"),
    "not finite": (edited(lambda r: r.raw_input_contents.__setitem__(0, b"\xff" * 16)), "INVALID_ARGUMENT", "'x'"),
    "typed, too few": (
        typed(lambda r: r.inputs[0].contents.fp32_contents.pop()),
        "INVALID_ARGUMENT",
        "3 elements in fp32_contents",
    ),
    "typed, wrong field": (typed(lambda r: r.inputs[1].contents.int_contents.append(1)), "INVALID_ARGUMENT", "int64_contents"),
    "no such output": (edited(lambda r: r.outputs.add(name="y")), "INVALID_ARGUMENT", "no output 'y'"),
    "no such parameter": (affine(colour="red"), "INVALID_ARGUMENT", "no parameter 'colour'"),
    "parameter empty": (edited(lambda r: r.parameters["factor"].SetInParent()), "INVALID_ARGUMENT", "'factor' has no value"),
    "parameter too large": (affine(priority=("uint64_param", 2**64 - 1)), "INVALID_ARGUMENT", "'priority'"),
    "timeout negative": (affine(timeout=-1), "INVALID_ARGUMENT", "'timeout' is -1"),
    "final no bool": (affine(triton_enable_empty_final_response=1), "INVALID_ARGUMENT", "expected true or false"),
    "binary output no bool": (affine(binary_data_output="yes"), "INVALID_ARGUMENT", "'binary_data_output' is 'yes'"),
    "sequence": (affine(sequence_id="s"), "UNIMPLEMENTED", "'sequence_id' is 's'"),
    "sequence's start": (affine(sequence_start=True), "UNIMPLEMENTED", "'sequence_start' is True"),
    "tensor as parameter": (affine(x=1.5), "INVALID_ARGUMENT", "'x'"),
}


@pytest.mark.parametrize("name", BAD)
async def test_the_error_of_a_wrong_request_says_what_is_wrong(stub: Any, name: str) -> None:
    request, status, says = BAD[name]
    error = await oip_grpc.refused(stub.ModelInfer(request))
    assert (error.status, error.is_retryable, error.retry_ms) == (status, "false", None)
    assert says in error.text
    assert error.code in ("unknown_model", "invalid_input", "unsupported")


@pytest.mark.parametrize(
    ("datatype", "field", "number"),
    [("INT8", "int_contents", 128), ("INT16", "int_contents", -(2**15) - 1), ("UINT8", "uint_contents", 256),
     ("UINT16", "uint_contents", 2**16)],
)  # fmt: skip
async def test_numbers_that_a_type_cannot_hold_are_refused(stub: Any, datatype: str, field: str, number: int) -> None:
    request = pb.ModelInferRequest(model_name=f"same_{datatype.lower()}")
    tensor = request.inputs.add(name="x", datatype=datatype, shape=[2])
    getattr(tensor.contents, field).extend([1, number])
    error = await oip_grpc.refused(stub.ModelInfer(request))
    assert error.text == f"input 'x' holds a number outside the range of {datatype}: {min(1, number)} to {max(1, number)}"


async def test_half_precision_numbers_have_no_list(stub: Any) -> None:
    request = pb.ModelInferRequest(model_name="same_fp16")
    request.inputs.add(name="x", datatype="FP16", shape=[1]).contents.fp32_contents.append(1)
    assert "send raw_input_contents" in (await oip_grpc.refused(stub.ModelInfer(request))).text


async def test_too_large_a_message_is_refused_and_the_largest_is_not(stub: Any) -> None:
    x = np.zeros(MAX_BYTES // 4 - 64, np.float32)
    found = oip_grpc.outputs_of(await stub.ModelInfer(oip_grpc.request("same_fp32", {"x": x})))
    assert oip_grpc.same(found["output"], x)
    x = np.zeros(MAX_BYTES // 4, np.float32)
    error = await oip_grpc.refused(stub.ModelInfer(oip_grpc.request("same_fp32", {"x": x})))
    assert error.status == "RESOURCE_EXHAUSTED"
    assert "larger than max" in error.text


async def test_a_small_message_that_unpacks_to_a_large_one_is_refused(stack: Stack) -> None:
    async with oip_grpc.connected(stack.grpc_address, compression=grpc.Compression.Gzip) as stub:
        x = np.zeros(16 * MAX_BYTES, np.uint8)
        error = await oip_grpc.refused(stub.ModelInfer(oip_grpc.request("same_uint8", {"x": x})))
    assert error.status == "RESOURCE_EXHAUSTED"


async def test_a_long_or_strange_name_comes_back_short_enough_for_a_header(stub: Any) -> None:
    for name in ("n" * 100_000, "\x00\n%é€𝄞" * 5000):
        error = await oip_grpc.refused(stub.ModelInfer(pb.ModelInferRequest(model_name=name)))
        assert error.status == "NOT_FOUND"
        assert len(error.text.encode()) <= 2000


async def test_a_refusal_for_lack_of_room_says_when_to_come_back(
    stub: Any, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    kinds = iter([CapacityError, TenantLimitError])

    def admit(tenant: Any, num_bytes: int = 0) -> Ticket:
        sizes.append(num_bytes)
        raise next(kinds)("no room", retry_after_s=2.5)

    monkeypatch.setattr(stack.service.admission, "admit", admit)
    request = affine()
    for code in ("capacity", "tenant_limit"):
        error = await oip_grpc.refused(stub.ModelInfer(request))
        assert (error.status, error.code, error.is_retryable) == ("RESOURCE_EXHAUSTED", code, "true")
        assert error.retry_ms == "2500"
    assert sizes == [len(request.SerializeToString())] * 2


async def test_the_error_of_a_bug_reveals_nothing(stub: Any, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any, **__: Any) -> None:
        raise ValueError("secret")

    await stub.ModelInfer(affine())
    monkeypatch.setattr(stack.orchestrator, "submit", crash)
    for _ in range(2):
        error = await oip_grpc.refused(stub.ModelInfer(affine()))
        assert (error.status, error.text, error.code) == ("INTERNAL", "internal error", "internal")


# Time


async def test_the_deadline_of_the_call_is_that_of_the_request(stub: Any, stack: Stack, tmp_path: Path) -> None:
    """The server ends the request by itself: it knows the time limit, not only that the client has gone."""
    request = oip_grpc.request("gated", {"x": X}, folder=str(tmp_path))
    error = await oip_grpc.refused(stub.ModelInfer(request, timeout=0.3))
    assert error.status == "DEADLINE_EXCEEDED"
    await wait_until_async(lambda: stack.orchestrator.num_requests == 0, "the request is gone")
    (tmp_path / "open").touch()
    set_timeout = oip_grpc.request("gated", {"x": X}, folder=str(tmp_path / "never"), timeout=300_000)
    (tmp_path / "never").mkdir()
    error = await oip_grpc.refused(stub.ModelInfer(set_timeout))
    assert (error.status, error.code) == ("DEADLINE_EXCEEDED", "deadline")
    (tmp_path / "never" / "open").touch()


async def test_a_timeout_of_zero_in_the_parameters_is_none(stub: Any) -> None:
    assert oip_grpc.outputs_of(await stub.ModelInfer(affine(timeout=0)))


async def test_the_smaller_of_both_limits_counts(stub: Any, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines_ns: list[int | None] = []
    submit = stack.orchestrator.submit

    def watched(submission: Any, *args: Any) -> Any:
        deadlines_ns.append(submission.terms.deadline_ns)
        return submit(submission, *args)

    monkeypatch.setattr(stack.orchestrator, "submit", watched)
    began_ns = time.monotonic_ns()
    for _ in range(2):
        await stub.ModelInfer(affine())
        await stub.ModelInfer(affine(), timeout=20)
    assert deadlines_ns[0] is deadlines_ns[2] is None
    for deadline_ns in deadlines_ns[1::2]:
        assert deadline_ns is not None
        assert 10e9 < deadline_ns - began_ns < 10e9 + time.monotonic_ns() - began_ns + 12e9  # gRPC rounds it up


async def test_cancelling_a_call_cancels_what_is_queued(stub: Any, stack: Stack, tmp_path: Path) -> None:
    def started(number: int) -> bool:
        return (tmp_path / f"started-{number}").exists()

    calls = [
        stub.ModelInfer(oip_grpc.request("gated", {"x": np.full(4, number, np.float32)}, folder=str(tmp_path)))
        for number in range(8)
    ]
    await wait_until_async(lambda: started(0) and stack.orchestrator.num_requests == 8, "the first runs and the others wait")
    for call in calls[4:]:
        call.cancel()
    await wait_until_async(lambda: stack.orchestrator.num_requests == 4, "they are gone")
    (tmp_path / "open").touch()
    for call in calls[:4]:
        np.testing.assert_array_equal(oip_grpc.outputs_of(await call)["output"], oip_grpc.outputs_of(await call)["output"])
    await asyncio.gather(*calls[4:], return_exceptions=True)
    assert not any(started(number) for number in range(4, 8))


async def test_a_connection_that_breaks_cancels_its_requests(stack: Stack, tmp_path: Path) -> None:
    async with oip_grpc.connected(stack.grpc_address) as other:
        call = other.ModelInfer(oip_grpc.request("gated", {"x": X}, folder=str(tmp_path)))
        await wait_until_async(lambda: stack.orchestrator.num_requests == 1, "it has come")
    await wait_until_async(lambda: stack.orchestrator.num_requests == 0, "it has gone")
    (tmp_path / "open").touch()
    with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
        await call


# Client memory


def in_memory(tensor: Any, region: str, size: int, offset: int = 0) -> None:
    """Says that a tensor is in client memory, or goes there."""
    place = {"shared_memory_region": region, "shared_memory_byte_size": size}
    oip_grpc.set_parameters(tensor.parameters, place | ({"shared_memory_offset": offset} if offset else {}))


@pytest.mark.parametrize("num", [16, 50_000])
async def test_inputs_and_outputs_may_be_in_client_memory(stub: Any, num: int) -> None:
    x = np.arange(num, dtype=np.float32)
    size = x.nbytes
    with shared_object(x.tobytes() + bytes(size)) as path:
        await stub.SystemSharedMemoryRegister(
            pb.SystemSharedMemoryRegisterRequest(name="region", key=f"/{path.name}", byte_size=2 * size)
        )
        status = await stub.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest())
        region = status.regions["region"]
        assert (list(status.regions), region.key, region.offset) == (["region"], f"/{path.name}", 0)
        request = pb.ModelInferRequest(model_name="same_fp32")
        in_memory(request.inputs.add(name="x", datatype="FP32", shape=[num]), "region", size)
        assert oip_grpc.same(oip_grpc.outputs_of(await stub.ModelInfer(request))["output"], x)
        in_memory(request.outputs.add(name="output"), "region", size, offset=size)
        response = await stub.ModelInfer(request)
        assert list(response.raw_output_contents) == [b""], "an entry for each output, also for those that are elsewhere"
        assert response.outputs[0].parameters["shared_memory_region"].string_param == "region"
        assert response.outputs[0].parameters["shared_memory_offset"].int64_param == size
        assert path.read_bytes() == x.tobytes() * 2
        await stub.SystemSharedMemoryUnregister(pb.SystemSharedMemoryUnregisterRequest(name="region"))
        error = await oip_grpc.refused(stub.ModelInfer(request))
        assert (error.status, error.text) == ("NOT_FOUND", "Unable to find shared memory region: 'region'")


async def test_inputs_in_client_memory_mix_with_raw_ones(stub: Any) -> None:
    with shared_object(X.tobytes()) as path:
        await stub.SystemSharedMemoryRegister(pb.SystemSharedMemoryRegisterRequest(name="mixed", key=path.name, byte_size=16))
        request = edited(lambda r: r.raw_input_contents.pop(0))
        in_memory(request.inputs[0], "mixed", 16)
        np.testing.assert_array_equal(oip_grpc.outputs_of(await stub.ModelInfer(request))["output"], X[INDEX])
        request.inputs[0].contents.fp32_contents.append(1)
        assert "as well as shared memory" in (await oip_grpc.refused(stub.ModelInfer(request))).text
        del request.inputs[0].contents.fp32_contents[:]
        in_memory(request.outputs.add(name="output"), "mixed", 4)
        error = await oip_grpc.refused(stub.ModelInfer(request))
        assert error.status == "INTERNAL"
        assert "should be at least 8 bytes" in error.text
        in_memory(request.inputs[0], "mixed", 99)
        error = await oip_grpc.refused(stub.ModelInfer(request))
        assert (error.status, error.text) == ("INVALID_ARGUMENT", "Invalid offset + byte size for shared memory region: 'mixed'")
        await stub.SystemSharedMemoryUnregister(pb.SystemSharedMemoryUnregisterRequest())


# Garbage


@pytest.mark.parametrize("method", [method.name for method in pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods])
async def test_garbage_is_refused_by_every_call(stub: Any, method: str) -> None:
    if method == "ModelStreamInfer":
        pytest.skip("has a test of its own")
    call = stub.channel.unary_unary(f"{oip_grpc.METHOD}{method}")
    for garbage in (b"\xff", b"\x0a\x05ab", b"\x0f" * 40, os.urandom(300) + b"\xff" * 11, b"\x3a" * 9, b"\x38" + b"\xff" * 20):
        error = await oip_grpc.refused(call(garbage))
        assert (error.status, error.code) == ("INVALID_ARGUMENT", "invalid_input"), (garbage, error.text)


async def test_a_message_of_millions_of_fields_is_refused_at_once(stub: Any) -> None:
    call = stub.channel.unary_unary(f"{oip_grpc.METHOD}ModelInfer")
    error = await oip_grpc.refused(call(b"\x3a\x00" * (MAX_BYTES // 2 - 10)))
    assert "more than 10000" in error.text


async def test_an_unknown_call_is_unimplemented(stub: Any) -> None:
    error = await oip_grpc.refused(stub.channel.unary_unary(f"{oip_grpc.METHOD}ModelDance")(b""))
    assert error.status == "UNIMPLEMENTED"


async def test_thousands_of_calls_on_a_new_connection_are_all_answered(stack: Stack) -> None:
    """gRPC itself resets some of them, without a code, beyond 1,000 that wait."""
    async with oip_grpc.connected(stack.grpc_address) as stub:
        answers = await asyncio.gather(*(stub.ModelInfer(affine(), timeout=60) for _ in range(3000)), return_exceptions=True)
    assert [str(answer) for answer in answers if isinstance(answer, Exception)] == []
