"""All of a server except Ray, in this process: the gateway on a real socket, the orchestrator, and workers over real links."""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.config import (
    EngineConfig,
    GatewayConfig,
    JobsConfig,
    LinkConfig,
    LogsConfig,
    OrchestratorConfig,
    RecordsConfig,
    TransportConfig,
)
from dyorc.core.request import Terms
from dyorc.errors import ProgramLoadError
from dyorc.gateway.codec.http_errors import status_of_outcome
from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.direct import DirectInference
from dyorc.gateway.http.http_server import HttpServer
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.log_control import LogControl
from dyorc.gateway.metrics import Metrics
from dyorc.gateway.origins import Origins
from dyorc.gateway.request_records import Records
from dyorc.gateway.service import InferenceService
from dyorc.gateway.shedding import LoopLag, Shedding
from dyorc.models.registry import ModelRegistry
from dyorc.models.status import ProgramStatus, ReplicaState
from dyorc.orchestrator.link_fleet import Site
from dyorc.orchestrator.linked_orchestrator import linked_orchestrator
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.replica.assignment import Identity, Uplink
from dyorc.replica.worker import Worker
from dyorc.server.request_pipeline import grpc_server, mcp_door
from dyorc.store.base import JobStore
from dyorc.telemetry.record import RequestRecorder
from dyorc.telemetry.record_store import RecordStore
from dyorc.telemetry.recording import Recording
from dyorc.telemetry.request_log import RequestLog
from dyorc.transport.arena_file import sweep
from dyorc.transport.cluster_network import NodeNetwork
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.shared_folders import arena_folder
from tests.two_hosts import Host

FAST_LINK = LinkConfig(heartbeat_interval_s=0.2, heartbeat_timeout_s=3.0, announce_interval_s=0.05)
"""Silence that a busy machine causes does not last that long."""
"""Short enough for tests, long enough for a machine under load."""

FAST_TRANSPORT = TransportConfig(
    arena_folder=arena_folder(), arena_bytes=64 * 2**20, arena_wait_s=1.0, inline_limit_bytes=16 * 1024
)
"""Small, and the same everywhere."""

_REPOSITORY = Path(__file__).parents[2]

PLACE = "TEST_REPLICA_PLACE"
"""The variable in a replica process's environment that holds its `Place`, as JSON."""


class Place(msgspec.Struct, frozen=True):
    """Where among several nodes a replica process is, with the cluster's secrets and settings."""

    node: str
    host: str
    public_key: str
    secret_key: str
    token: str
    link: dict[str, Any]
    transport: dict[str, Any]


def within(timeout_s: float) -> Terms:
    """Returns terms of a request that must be answered by then."""
    return Terms(deadline_ns=time.monotonic_ns() + int(timeout_s * 1e9))


@dataclass
class Stack:
    """A running server. Replicas are started by the test that needs them."""

    repertoire: ModelRegistry
    orchestrator: Orchestrator
    address: str
    link: LinkConfig
    transport: TransportConfig
    client: httpx.AsyncClient
    service: InferenceService
    network: NodeNetwork | None = None
    grpc_address: str = ""
    records: RecordStore | None = None
    workers: dict[str, Worker] = field(default_factory=dict[str, Worker])
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict[str, "subprocess.Popen[bytes]"])

    def status(self, program: Program) -> ProgramStatus:
        """Returns what the orchestrator knows of a program's replicas."""
        return self.orchestrator.status.programs[program.name]

    @property
    def uplink(self) -> Uplink:
        """How a replica of this process reaches the orchestrator."""
        secrets = None if self.network is None else self.network.secrets
        return Uplink(address=self.address, link=self.link, transport=self.transport, secrets=secrets)

    def identity(self, replica_id: str, program: str) -> Identity:
        """Returns who a replica of this process is."""
        host = "" if self.network is None else self.network.host
        return Identity(replica_id=replica_id, program=program, node="here", host=host)

    async def start_worker(self, program: Program, replica_id: str = "") -> Worker:
        """Starts a replica on a thread of this process; returns once the orchestrator knows it."""
        replica_id = replica_id or f"{program.name}-{len(self.workers)}"
        worker = Worker(lambda: program, self.identity(replica_id, program.name), self.uplink)
        self.workers[replica_id] = worker
        with contextlib.suppress(ProgramLoadError):  # the orchestrator has been told; Serve would try again
            await asyncio.to_thread(worker.start)
            status = self.status(program)
            await wait_until_async(
                lambda: replica_id in status.replica_pids or bool(status.error), f"replica {replica_id} joins, or cannot load"
            )
        return worker

    def spawn(self, target: str, program: Program, replica_id: str, log: Path | None = None) -> "subprocess.Popen[bytes]":
        """Starts a replica in a separate process.

        Args:
            log: A file for what it logs, instead of our standard error.
        """
        command = [sys.executable, "-m", "tests.integration.replica_process", target, program.name, self.address, replica_id]
        with contextlib.nullcontext() if log is None else log.open("wb") as file:
            process = self.processes[replica_id] = subprocess.Popen(command, cwd=_REPOSITORY, stderr=file)
        return process

    def place_of(self, host: Host) -> Place:
        """Returns what a process on a host has to know. Its node is ``here`` if it shares our address."""
        assert self.network is not None
        secrets = self.network.secrets
        return Place(
            node="here" if host.address == self.network.host else "there",
            host=host.address,
            public_key=secrets.keys.public.decode(),
            secret_key=secrets.keys.secret.decode(),
            token=secrets.token,
            link=self.link.model_dump(),
            transport=self.transport.model_dump(),
        )

    def spawn_on(self, host: Host, target: str, program: Program, replica_id: str) -> "subprocess.Popen[bytes]":
        """Starts a replica on a host, in a separate process; the host ends it."""
        command = [sys.executable, "-m", "tests.integration.replica_process", target, program.name, self.address, replica_id]
        return host.start(command, environment={PLACE: msgspec.json.encode(self.place_of(host)).decode()})

    async def start_process(self, target: str, program: Program, replica_id: str) -> "subprocess.Popen[bytes]":
        """Starts a replica with `spawn`, and returns once the orchestrator knows it."""
        process = self.spawn(target, program, replica_id)
        await self.wait_for_replica(program, replica_id)
        return process

    async def spawn_and_wait(self, target: str, program: Program, replica_id: str, state: ReplicaState) -> None:
        """Starts a replica with `spawn`, and returns once it is in this state."""
        self.spawn(target, program, replica_id)
        replicas = self.status(program).replicas
        await wait_until_async(
            lambda: replica_id in replicas and replicas[replica_id].state is state, f"replica {replica_id} is {state.value}"
        )

    async def wait_for_replica(self, program: Program, replica_id: str) -> None:
        """Returns once the orchestrator knows a replica."""
        await wait_until_async(lambda: replica_id in self.status(program).replica_pids, f"replica {replica_id} joins")

    async def close(self) -> None:
        """Ends all replicas."""
        for worker in self.workers.values():
            await asyncio.to_thread(worker.stop)
        for process in self.processes.values():
            process.kill()  # ends a stopped one too
            process.wait()
        sweep(self.transport.arena_folder)  # of killed replicas, as the next process does that starts


@contextlib.asynccontextmanager
async def running(
    targets: Sequence[Workflow | Program],
    *,
    engine: EngineConfig | None = None,
    gateway: GatewayConfig | None = None,
    link: LinkConfig = FAST_LINK,
    transport: TransportConfig = FAST_TRANSPORT,
    num_replicas: int = 1,
    network: NodeNetwork | None = None,
    store: JobStore | None = None,
    jobs: JobsConfig | None = None,
    grpc: bool = False,
    recorder: RequestRecorder | None = None,
    records: RecordStore | None = None,
) -> AsyncGenerator[Stack]:
    """Serves `targets`, with `num_replicas` workers on threads for each program; with a `network`, to all of its hosts.

    It serves HTTP and, if asked for, gRPC; with a `store` it takes jobs too. Records of requests go to `recorder`;
    there are routes that show those in `records`.
    """
    repertoire = ModelRegistry.of(targets)
    gateway = gateway or GatewayConfig(port=0, drain_timeout_s=1)
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dyorc-"))
        address = f"unix://{folder}/link" if network is None else f"tcp://{network.host}:*"
        engine = engine or EngineConfig()
        site = Site(address=address, link=link, transport=transport, node="here", network=network)
        orchestrator, address = await stack.enter_async_context(
            linked_orchestrator(repertoire, OrchestratorConfig(engine=engine), site)
        )
        service = stack.enter_context(contextlib.closing(InferenceService(orchestrator, gateway, origins=Origins(recorder))))
        service.shedding = Shedding(LoopLag(lambda: 0.0))  # on a busy machine, requests with a short time limit would be refused
        lines = RequestLog("off", 1.0, status_of_outcome)
        service.server_view.control_logs(LogControl(LogsConfig(), lines, Recording(RecordsConfig()), orchestrator.set_logs))
        kept = None if store is None else await stack.enter_async_context(Jobs(service, store, jobs or JobsConfig()))
        shown = None if records is None else Records(records, service.peers)
        mcp = await stack.enter_async_context(mcp_door(service)) if gateway.mcp else None
        app = Gateway(service, kept, records=shown, metrics=Metrics(service), mcp=mcp)
        http = HttpServer(app, gateway, service.shedding, DirectInference(service))
        server = await stack.enter_async_context(http)
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=server.url, timeout=TIMEOUT_S, trust_env=False))
        found = Stack(repertoire, orchestrator, address, link, transport, client, service, network)
        found.records = records
        if grpc:
            found.grpc_address = (await stack.enter_async_context(grpc_server(service, gateway))).address
        stack.push_async_callback(found.close)
        for program in repertoire.programs:
            for _ in range(num_replicas):
                await found.start_worker(program)
        yield found


def num_descriptors() -> int:
    """Returns how many descriptors this process holds."""
    return len(os.listdir("/proc/self/fd"))
