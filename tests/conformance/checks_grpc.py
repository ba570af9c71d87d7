"""3.4: what only gRPC has: typed contents, message sizes, parameters' types, errors' metadata, cancellation."""
# pyright: basic
# pyright: reportMissingImports=false
# Tritonclient is in another environment.

from __future__ import annotations

from functools import partial
from typing import Any

import grpc
import numpy as np
from rows import Table, expect
from tensors import DATATYPES, empty, input_name, output_name, sample, turned
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import deserialize_bytes_tensor

_SECTION = "3.4 gRPC"
_OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
    "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip
_X = np.arange(4, dtype=np.float32)


def _from_raw(raw: bytes, datatype: str, like: np.ndarray) -> list[Any]:
    if datatype == "BYTES":
        return deserialize_bytes_tensor(raw).tolist()
    return np.frombuffer(raw, like.dtype).tolist()


def behave_request(x: np.ndarray = _X, **fields: Any) -> Any:
    """Returns a request of the model `behave`."""
    request = service_pb2.ModelInferRequest(model_name="behave", raw_input_contents=[x.tobytes()], **fields)
    request.inputs.add(name="x", datatype="FP32", shape=x.shape)
    return request


async def _refused(stub: Any, request: Any, status: str, *words: str) -> grpc.aio.AioRpcError:
    try:
        await stub.ModelInfer(request)
    except grpc.aio.AioRpcError as error:
        found = error
    else:
        raise AssertionError(f"no error; expected {status}")
    details = found.details() or ""
    expect(found.code().name, status, f"the status ({details})")
    assert all(word in details for word in words), f"{words} not in {details!r}"
    return found


async def _status(call: Any) -> str:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


async def typed_contents(stub: Any, datatype: str) -> None:
    """The same tensor may come as typed contents; the answer is raw, with an entry for each output."""
    request = service_pb2.ModelInferRequest(model_name="every_type", id="typed")
    for one in DATATYPES:
        array = sample(one) if one == datatype else empty(one)
        tensor = request.inputs.add(name=input_name(one), datatype=one, shape=array.shape)
        if one in _CONTENTS:
            getattr(tensor.contents, _CONTENTS[one]).extend(array.reshape(-1).tolist())
    response = await stub.ModelInfer(request)
    expect(response.id, "typed", "the id")
    expect(len(response.raw_output_contents), len(response.outputs), "the number of raw_output_contents")
    at = [output.name for output in response.outputs].index(output_name(datatype))
    expected = turned(sample(datatype)).reshape(-1).tolist()
    expect(_from_raw(response.raw_output_contents[at], datatype, sample(datatype)), expected, "the tensor")
    assert not response.outputs[at].HasField("contents"), "the answer has typed contents"


async def no_typed_half_precision(stub: Any) -> None:
    for datatype in ("FP16", "BF16"):
        request = service_pb2.ModelInferRequest(model_name="every_type")
        for one in DATATYPES:
            array = sample(one) if one == datatype else empty(one)
            tensor = request.inputs.add(name=input_name(one), datatype=one, shape=array.shape)
            if one == datatype:
                tensor.contents.fp32_contents.extend(array.reshape(-1).tolist())
        await _refused(stub, request, "INVALID_ARGUMENT", datatype)


async def raw_and_typed_together(stub: Any) -> None:
    request = behave_request()
    request.inputs[0].contents.fp32_contents.extend(_X.tolist())
    await _refused(stub, request, "INVALID_ARGUMENT", "contents")


async def wrong_contents(stub: Any) -> None:
    request = service_pb2.ModelInferRequest(model_name="behave")
    request.inputs.add(name="x", datatype="FP32", shape=[4]).contents.int64_contents.extend([1, 2, 3, 4])
    await _refused(stub, request, "INVALID_ARGUMENT", "x")


async def too_few_elements(stub: Any) -> None:
    request = behave_request()
    request.raw_input_contents[0] = _X.tobytes()[:-1]
    await _refused(stub, request, "INVALID_ARGUMENT", "x")
    request = service_pb2.ModelInferRequest(model_name="behave")
    request.inputs.add(name="x", datatype="FP32", shape=[4]).contents.fp32_contents.extend([1, 2, 3])
    await _refused(stub, request, "INVALID_ARGUMENT", "x")


async def too_many_raw_inputs(stub: Any) -> None:
    request = behave_request()
    request.raw_input_contents.append(b"")
    await _refused(stub, request, "INVALID_ARGUMENT")


async def too_large(stub: Any) -> None:
    x = np.zeros(17 * 2**20, np.float32)  # 68 MiB; the limit is 64
    expect(await _status(stub.ModelInfer(behave_request(x))) in ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT"), True, "refused")
    await stub.ModelInfer(behave_request())


async def parameters(stub: Any) -> None:
    """Parameters have the types that clients use: priority uint64, timeout int64, the model's own any."""
    request = behave_request()
    request.parameters["priority"].uint64_param = 1
    request.parameters["timeout"].int64_param = 5_000_000
    request.parameters["rest_s"].double_param = 0.001
    request.parameters["fails"].bool_param = False
    await stub.ModelInfer(request)
    request.parameters["rest_s"].string_param = "long"
    await _refused(stub, request, "INVALID_ARGUMENT", "rest_s")


async def error_metadata(stub: Any) -> None:
    """Beyond the protocol: DyOrc's code of the error, and whether trying again may help."""
    request = behave_request()
    request.parameters["fails"].bool_param = True
    error = await _refused(stub, request, "INTERNAL", "asked to fail")
    found = {str(key): value for key, value in error.trailing_metadata() or ()}
    assert found.get("dyorc-code"), f"no dyorc-code in {found}"
    assert found.get("dyorc-retryable") in ("true", "false"), f"no dyorc-retryable in {found}"
    assert "Traceback" not in (error.details() or ""), "a stack trace left the server"


async def deadline_of_the_call(stub: Any) -> None:
    request = behave_request()
    request.parameters["rest_s"].double_param = 0.5
    expect(await _status(stub.ModelInfer(request, timeout=0.1)), "DEADLINE_EXCEEDED", "the status")


async def cancellation(stub: Any) -> None:
    """A request that waits behind another one and is cancelled does not run."""

    async def num_executions() -> int:
        found = await stub.ModelStatistics(service_pb2.ModelStatisticsRequest(name="behave_program"))
        return found.model_stats[0].execution_count

    await stub.ModelInfer(behave_request())
    before = await num_executions()
    slow = behave_request()
    slow.parameters["rest_s"].double_param = 0.5
    running = stub.ModelInfer(slow)
    waiting = [stub.ModelInfer(behave_request()) for _ in range(8)]
    waiting[-1].cancel()
    for one in waiting[:-1]:
        one.cancel()
    await running
    await stub.ModelInfer(behave_request())
    done = await num_executions() - before
    assert done <= 2 + 2, f"{done} executions, though eight of ten requests were cancelled"  # two batches may be on their way


async def rpcs(stub: Any) -> None:
    """The server knows every RPC."""
    for name in _UNARY:
        request = getattr(service_pb2, f"{name}Request")()
        found = await _status(getattr(stub, name)(request))
        is_refused = (
            name in _MAY_BE_REFUSED and found == "UNIMPLEMENTED"
        )  # the method exists, but the server does not offer what it does
        assert is_refused or found not in ("UNIMPLEMENTED", "UNKNOWN"), f"{name}: {found}"


_UNARY = (
    "ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer", "ModelConfig", "ModelStatistics",
    "RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload", "SystemSharedMemoryStatus", "SystemSharedMemoryRegister",
    "SystemSharedMemoryUnregister", "CudaSharedMemoryStatus", "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister",
    "TraceSetting", "LogSettings",
)  # fmt: skip

_MAY_BE_REFUSED = frozenset({"RepositoryModelLoad", "RepositoryModelUnload", "TraceSetting", "LogSettings"})

CHECKS = {
    "every unary RPC is there": rpcs,
    "FP16 and BF16 have no typed contents": no_typed_half_precision,
    "raw and typed contents in one request": raw_and_typed_together,
    "contents of another type": wrong_contents,
    "a tensor with too few bytes or elements": too_few_elements,
    "more raw contents than inputs": too_many_raw_inputs,
    "a message above the limit": too_large,
    "parameters in the types that clients use": parameters,
    "errors carry code and retryable": error_metadata,
    "a call's deadline": deadline_of_the_call,
    "a cancelled call is not run": cancellation,
}


def add(table: Table, grpc_address: str) -> None:
    """Adds all checks."""

    async def run(check: Any) -> None:
        async with grpc.aio.insecure_channel(grpc_address, options=_OPTIONS) as channel:
            await check(service_pb2_grpc.GRPCInferenceServiceStub(channel))

    for datatype in _CONTENTS:
        table.add(
            _SECTION, "grpc stubs", f"{datatype} in typed contents", partial(run, partial(typed_contents, datatype=datatype))
        )
    for name, check in CHECKS.items():
        table.add(_SECTION, "grpc stubs", name, partial(run, check))
