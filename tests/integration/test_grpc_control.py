# pyright: basic
# Generated messages and stubs have no types.
"""What gRPC clients ask besides inference: health, metadata, configuration, statistics, repository, memory, settings, keys."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from dyorc.config import GatewayConfig
from dyorc.engine.tallies import BatchTally, ModelStatistics, Tally
from dyorc.errors import AuthenticationError
from dyorc.gateway.access import Access
from dyorc.gateway.tenants import Tenant
from dyorc.protocol import inference_pb2 as pb
from tests import oip_grpc
from tests.deadlines import wait_until_async
from tests.integration.grpc_servers import GRPC_SERVERS
from tests.integration.stack import Stack, running
from tests.shared_folders import shared_object
from tests.workflows import arithmetic, slow, tensors

TARGETS = [tensors.affine, arithmetic.sums]
X = np.array([1.5, 2.5, 3.5, 4.5], np.float32)
INDEX = np.array([3, 0], np.int64)
METHODS = [method.name for method in pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods]
OPEN = {"ServerLive", "ServerReady"}


@pytest.fixture(scope="module", params=GRPC_SERVERS)
async def stack(leaves_nothing: None, request: pytest.FixtureRequest) -> AsyncIterator[Stack]:
    """Starts one server for this module."""
    gateway = GatewayConfig(port=0, drain_timeout_s=1, grpc_server=request.param)
    async with running(TARGETS, gateway=gateway, grpc=True) as found:
        yield found


@pytest.fixture(scope="module")
async def stub(stack: Stack) -> AsyncIterator[Any]:
    """Opens one connection."""
    async with oip_grpc.connected(stack.grpc_address) as found:
        yield found


def request_of(method: str) -> Any:
    """Returns a request of a call, about `affine` where it is about a model."""
    request = getattr(pb, f"{method}Request")() if hasattr(pb, f"{method}Request") else pb.ModelInferRequest()
    for field in ("name", "model_name"):
        if method.startswith("Model") and field in request.DESCRIPTOR.fields_by_name:
            setattr(request, field, "affine")
    return request


async def test_health_is_reported(stub: Any) -> None:
    assert (await stub.ServerLive(pb.ServerLiveRequest())).live
    assert (await stub.ServerReady(pb.ServerReadyRequest())).ready
    for name, version, expected in (("affine", "", True), ("affine", "1", True), ("affine", "2", False), ("nix", "", False)):
        assert (await stub.ModelReady(pb.ModelReadyRequest(name=name, version=version))).ready is expected


async def test_nothing_is_ready_without_replicas() -> None:
    async with running([tensors.affine], grpc=True, num_replicas=0) as stack, oip_grpc.connected(stack.grpc_address) as stub:
        assert (await stub.ServerLive(pb.ServerLiveRequest())).live
        assert not (await stub.ServerReady(pb.ServerReadyRequest())).ready
        assert not (await stub.ModelReady(pb.ModelReadyRequest(name="affine"))).ready
        assert len((await stub.RepositoryIndex(pb.RepositoryIndexRequest())).models) == 2
        assert not (await stub.RepositoryIndex(pb.RepositoryIndexRequest(ready=True))).models
        health = HealthStub(stub.channel)
        watch = health.Watch(health_pb2.HealthCheckRequest())
        kinds = health_pb2.HealthCheckResponse
        assert (await watch.read()).status == kinds.NOT_SERVING
        await stack.start_worker(tensors.affine_program)
        assert (await watch.read()).status == kinds.SERVING
        assert (await stub.ServerReady(pb.ServerReadyRequest())).ready


async def test_grpcs_own_health_service(stub: Any) -> None:
    health = HealthStub(stub.channel)
    for service in ("", "inference.GRPCInferenceService", "liveness"):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    error = await oip_grpc.refused(health.Check(health_pb2.HealthCheckRequest(service="nix")))
    assert error.status == "NOT_FOUND"
    watch = health.Watch(health_pb2.HealthCheckRequest(service="nix"))
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    watch.cancel()


async def test_reflection_shows_the_services_and_their_messages(stub: Any) -> None:
    call = ServerReflectionStub(stub.channel).ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    names = {service.name for service in (await call.read()).list_services_response.service}
    assert {"inference.GRPCInferenceService", "grpc.health.v1.Health"} <= names
    for symbol in ("inference.GRPCInferenceService", "inference.ModelInferRequest", "grpc.health.v1.Health"):
        await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol))
        assert (await call.read()).file_descriptor_response.file_descriptor_proto
    await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol="nix"))
    assert (await call.read()).error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    await call.done_writing()


async def test_metadata_is_that_of_http(stub: Any, stack: Stack) -> None:
    server = await stub.ServerMetadata(pb.ServerMetadataRequest())
    assert server.name == "dyorc"
    assert {"statistics", "model_configuration"} <= set(server.extensions)
    for path in ("affine", "sums", "affine_program"):
        found = await stub.ModelMetadata(pb.ModelMetadataRequest(name=path))
        expected = (await stack.client.get(f"/v2/models/{path}")).json()
        tensors_of = lambda kind: [  # noqa: E731
            {"name": one.name, "datatype": one.datatype, "shape": list(one.shape)}
            for one in getattr(found, kind)  # noqa: B023
        ]
        assert (found.name, list(found.versions), found.platform) == (path, ["1"], expected["platform"])
        assert (tensors_of("inputs"), tensors_of("outputs")) == (expected["inputs"], expected["outputs"])


async def test_the_configuration_is_that_of_http(stub: Any) -> None:
    config = MessageToDict(
        (await stub.ModelConfig(pb.ModelConfigRequest(name="affine"))).config, preserving_proto_field_name=True
    )
    assert config["name"] == "affine"
    assert [(one["name"], one["data_type"], one["dims"]) for one in config["input"]] == [
        ("x", "TYPE_FP32", ["4"]),
        ("index", "TYPE_INT64", ["2"]),
    ]
    assert [(one["name"], one["data_type"]) for one in config["output"]] == [("output", "TYPE_FP32")]


async def test_statistics_have_all_eight_counters(stub: Any, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ModelStatistics(last_inference_ms=5, inference_count=7, execution_count=3, success=Tally(7, 700), queue=Tally(7, 70))
    found.batches = {4: BatchTally(compute_infer=Tally(2, 20)), 2: BatchTally()}
    monkeypatch.setattr(stack.orchestrator, "statistics", lambda name: found if name == "affine" else ModelStatistics())
    answer = await stub.ModelStatistics(pb.ModelStatisticsRequest(name="affine"))
    (stats,) = answer.model_stats
    assert (stats.name, stats.version, stats.last_inference, stats.inference_count, stats.execution_count) == (
        "affine",
        "1",
        5,
        7,
        3,
    )
    counters = ["success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"]
    assert all(stats.inference_stats.HasField(name) for name in counters)
    assert (stats.inference_stats.success.count, stats.inference_stats.success.ns) == (7, 700)
    assert [(one.batch_size, one.compute_infer.ns) for one in stats.batch_stats] == [(2, 0), (4, 20)]
    assert all(stats.batch_stats[0].HasField(name) for name in ("compute_input", "compute_infer", "compute_output"))
    everything = await stub.ModelStatistics(pb.ModelStatisticsRequest())
    assert [one.name for one in everything.model_stats] == ["add_up", "affine", "affine_program", "sums"]


async def test_the_repository_is_shown_and_not_changed(stub: Any) -> None:
    index = await stub.RepositoryIndex(pb.RepositoryIndexRequest(ready=True))
    assert [(one.name, one.version, one.state) for one in index.models] == [
        (name, "1", "READY") for name in ("add_up", "affine", "affine_program", "sums")
    ]
    for call in (
        stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="affine")),
        stub.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="affine")),
        stub.RepositoryIndex(pb.RepositoryIndexRequest(repository_name="other")),
    ):
        error = await oip_grpc.refused(call)
        assert (error.status, error.code) == ("UNIMPLEMENTED", "unsupported")


async def test_settings_are_shown_and_not_changed(stub: Any) -> None:
    trace = await stub.TraceSetting(pb.TraceSettingRequest(model_name="affine"))
    assert list(trace.settings["trace_level"].value) == ["OFF"]
    same, other = pb.TraceSettingRequest(), pb.TraceSettingRequest()
    same.settings["trace_level"].value.append("OFF")
    other.settings["trace_level"].value.append("TIMESTAMPS")
    assert await stub.TraceSetting(same) == trace
    assert (await oip_grpc.refused(stub.TraceSetting(other))).status == "UNIMPLEMENTED"


async def test_settings_of_the_log_are_changed(stub: Any) -> None:
    before = await stub.LogSettings(pb.LogSettingsRequest())
    assert (before.settings["log_warning"].bool_param, before.settings["log_info"].bool_param) == (True, False)
    verbose, back, odd = pb.LogSettingsRequest(), pb.LogSettingsRequest(), pb.LogSettingsRequest()
    verbose.settings["log_verbose_level"].uint32_param = 1
    after = await stub.LogSettings(verbose)
    assert (after.settings["log_verbose_level"].uint32_param, after.settings["log_info"].bool_param) == (1, True)
    back.settings["log_info"].bool_param = False
    assert await stub.LogSettings(back) == before
    odd.settings["log_color"].string_param = "red"
    assert (await oip_grpc.refused(stub.LogSettings(odd))).status == "UNIMPLEMENTED"


async def test_client_memory_is_off_by_default(stub: Any) -> None:
    for method in METHODS:
        if "SharedMemory" in method:
            error = await oip_grpc.refused(getattr(stub, method)(request_of(method)))
            assert (error.status, error.code) == ("UNIMPLEMENTED", "client_memory_disabled"), method


async def test_client_memory_works_where_it_is_allowed(tmp_path: Path) -> None:
    gateway = GatewayConfig(port=0, drain_timeout_s=1, allow_client_shm=True)
    async with running([tensors.affine], gateway=gateway, grpc=True) as stack, oip_grpc.connected(stack.grpc_address) as stub:
        for call, status, says in (
            (stub.SystemSharedMemoryRegister(pb.SystemSharedMemoryRegisterRequest(key="k")), "INVALID_ARGUMENT", "region name"),
            (
                stub.SystemSharedMemoryRegister(pb.SystemSharedMemoryRegisterRequest(name="a", key="nix", byte_size=1)),
                "INTERNAL",
                "Unable to open shared memory region: 'nix'",
            ),
            (stub.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest(name="a")), "NOT_FOUND", "'a'"),
            (
                stub.CudaSharedMemoryRegister(
                    pb.CudaSharedMemoryRegisterRequest(name="a", raw_handle=bytes(64), device_id=999, byte_size=1)
                ),
                "INVALID_ARGUMENT",
                "GPUs not supported",
            ),
            (stub.CudaSharedMemoryStatus(pb.CudaSharedMemoryStatusRequest(name="a")), "NOT_FOUND", "'a'"),
        ):
            error = await oip_grpc.refused(call)
            assert error.status == status
            assert says in error.text
        assert not (await stub.CudaSharedMemoryStatus(pb.CudaSharedMemoryStatusRequest())).regions
        await stub.CudaSharedMemoryUnregister(pb.CudaSharedMemoryUnregisterRequest())
        await stub.SystemSharedMemoryUnregister(pb.SystemSharedMemoryUnregisterRequest())
        with shared_object(bytes(64)) as path:
            request = pb.SystemSharedMemoryRegisterRequest(name="a", key=path.name, byte_size=64)
            await stub.SystemSharedMemoryRegister(request)
            error = await oip_grpc.refused(stub.SystemSharedMemoryRegister(request))
            assert (error.status, error.text) == ("ALREADY_EXISTS", "shared memory region 'a' already in manager")


# Keys and tenants


class TwoKeys(Access):
    """Knows two keys."""

    def __init__(self) -> None:
        super().__init__("some file")

    def tenant_of(self, key: str | None) -> Tenant:
        if key == "all":
            return Tenant(name="a")
        if key == "one":
            return Tenant(name="b", models=frozenset({"sums"}))
        raise AuthenticationError("who are you")


@pytest.fixture
def guarded(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts a server that asks for keys."""
    monkeypatch.setattr(Access, "__init__", lambda self, keys_file="": setattr(self, "is_open", not keys_file))
    monkeypatch.setattr(stack.service, "access", TwoKeys())


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize("method", METHODS)
async def test_every_call_but_health_needs_a_key(stub: Any, method: str) -> None:
    if method == "ModelStreamInfer":
        call = stub.ModelStreamInfer()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call.read()
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
        return
    for metadata in ((), (("authorization", "Basic all"),), (("x-api-key", "other"),), (("authorization-bin", b"Bearer all"),)):
        call = getattr(stub, method)(request_of(method), metadata=metadata)
        if method in OPEN:
            await call
            continue
        error = await oip_grpc.refused(call)
        assert (error.status, error.code, error.text) == ("UNAUTHENTICATED", "unauthenticated", "who are you")


@pytest.mark.usefixtures("guarded")
async def test_reflection_needs_a_key_and_grpcs_health_does_not(stub: Any) -> None:
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    call = ServerReflectionStub(stub.channel).ServerReflectionInfo()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call.read()
    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
    call = ServerReflectionStub(stub.channel).ServerReflectionInfo(metadata=(("x-api-key", "one"),))
    await call.write(question)
    assert (await call.read()).list_services_response.service
    await call.done_writing()
    health = HealthStub(stub.channel)
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize(
    "metadata", [(("authorization", "Bearer one"),), (("authorization", "bearer one"),), (("x-api-key", "one"),)]
)
async def test_a_tenant_sees_only_its_models(stub: Any, metadata: Any) -> None:
    answer = await stub.ModelInfer(oip_grpc.request("sums", {"x": X}), metadata=metadata)
    assert float(oip_grpc.outputs_of(answer)["total"]) == X.sum()
    assert (await stub.ModelReady(pb.ModelReadyRequest(name="sums"), metadata=metadata)).ready
    for method in ("ModelInfer", "ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics", "SystemSharedMemoryStatus"):
        error = await oip_grpc.refused(getattr(stub, method)(request_of(method), metadata=metadata))
        assert (error.status, error.code) == ("PERMISSION_DENIED", "permission_denied")
    index = await stub.RepositoryIndex(pb.RepositoryIndexRequest(), metadata=metadata)
    assert [one.name for one in index.models] == ["sums"]
    statistics = await stub.ModelStatistics(pb.ModelStatisticsRequest(), metadata=metadata)
    assert [one.name for one in statistics.model_stats] == ["sums"]


# The server itself


async def test_a_port_that_is_taken_is_an_error_that_names_it(stack: Stack) -> None:
    gateway = GatewayConfig(port=0, grpc_port=int(stack.grpc_address.rpartition(":")[2]), drain_timeout_s=1)
    with pytest.raises(OSError, match=stack.grpc_address):
        async with running([tensors.affine], gateway=gateway, grpc=True, num_replicas=0):
            pass


async def test_the_port_is_the_one_after_that_of_http() -> None:
    assert GatewayConfig(port=8000).grpc_port_to_bind == 8001
    assert GatewayConfig(port=0).grpc_port_to_bind == 0
    assert GatewayConfig(port=65535).grpc_port_to_bind == 0
    assert GatewayConfig(port=8000, grpc_port=9).grpc_port_to_bind == 9


async def test_it_listens_on_ipv6() -> None:
    gateway = GatewayConfig(host="::1", port=0, drain_timeout_s=1)
    async with running([tensors.affine], gateway=gateway, grpc=True) as stack:
        assert stack.grpc_address.startswith("[::1]:")
        async with oip_grpc.connected(stack.grpc_address) as stub:
            assert (await stub.ServerReady(pb.ServerReadyRequest())).ready


async def test_a_stop_waits_for_calls_in_flight(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as client:
        async with running([slow.gated], gateway=GatewayConfig(port=0, drain_timeout_s=30), grpc=True) as stack:
            stub = await client.enter_async_context(oip_grpc.connected(stack.grpc_address))
            call = stub.ModelInfer(oip_grpc.request("gated", {"x": X}, folder=str(tmp_path)))
            await wait_until_async(lambda: (tmp_path / "started-1").exists(), "it runs")
            asyncio.get_running_loop().call_later(0.1, (tmp_path / "open").touch)
        np.testing.assert_array_equal(oip_grpc.outputs_of(await call)["output"], X + 1)
