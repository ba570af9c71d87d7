"""Everything of a server but Ray, in this process: gateway on a real socket, orchestrator, and workers over real ZeroMQ."""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.config import EngineConfig, GatewayConfig, LinkConfig
from dyorc.errors import ProgramLoadError
from dyorc.gateway.app import Gateway
from dyorc.gateway.catalog import Catalog
from dyorc.gateway.server import HttpServer
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.orchestrator.status import ProgramStatus
from dyorc.replica.worker import Worker
from tests.deadlines import wait_until_async

FAST_LINK = LinkConfig(heartbeat_interval_s=0.2, heartbeat_timeout_s=1.0, announce_interval_s=0.05)
"""Short enough for tests, long enough for a machine under load."""

_REPOSITORY = Path(__file__).parents[2]


@dataclass
class Stack:
    """What runs. Replicas are started by the test that needs them."""

    catalog: Catalog
    orchestrator: Orchestrator
    address: str
    link: LinkConfig
    client: httpx.AsyncClient
    workers: dict[str, Worker] = field(default_factory=dict[str, Worker])
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict[str, "subprocess.Popen[bytes]"])

    def status(self, program: Program) -> ProgramStatus:
        """What the orchestrator knows of a program's replicas."""
        return self.orchestrator.status.programs[program.name]

    async def start_worker(self, program: Program, replica_id: str = "") -> Worker:
        """A replica on a thread of this process; returns once the orchestrator knows it."""
        replica_id = replica_id or f"{program.name}-{len(self.workers)}"
        worker = Worker(lambda: program, program.name, self.address, replica_id, "here", self.link)
        self.workers[replica_id] = worker
        with contextlib.suppress(ProgramLoadError):  # the orchestrator has been told; Serve would try again
            await asyncio.to_thread(worker.start)
            await self.wait_for_replica(program, replica_id)
        return worker

    def spawn(self, target: str, program: Program, replica_id: str) -> "subprocess.Popen[bytes]":
        """A replica in a process of its own."""
        command = [sys.executable, "-m", "tests.integration.replica_process", target, program.name, self.address, replica_id]
        process = self.processes[replica_id] = subprocess.Popen(command, cwd=_REPOSITORY)
        return process

    async def start_process(self, target: str, program: Program, replica_id: str) -> "subprocess.Popen[bytes]":
        """`spawn`, and returns once the orchestrator knows it."""
        process = self.spawn(target, program, replica_id)
        await self.wait_for_replica(program, replica_id)
        return process

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


@contextlib.asynccontextmanager
async def running(
    targets: Sequence[Workflow | Program],
    *,
    engine: EngineConfig | None = None,
    gateway: GatewayConfig | None = None,
    link: LinkConfig = FAST_LINK,
    num_replicas: int = 1,
) -> AsyncIterator[Stack]:
    """Serves `targets`, with `num_replicas` workers on threads for each program."""
    catalog = Catalog.of(targets)
    gateway = gateway or GatewayConfig(port=0, drain_timeout_s=1)
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dyorc-"))
        address = f"ipc://{folder}/link"
        orchestrator = Orchestrator(catalog.programs, address, engine or EngineConfig(), link, "here")
        await stack.enter_async_context(orchestrator)
        server = await stack.enter_async_context(HttpServer(Gateway(catalog, orchestrator, gateway), gateway))
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=server.url, timeout=60, trust_env=False))
        found = Stack(catalog, orchestrator, address, link, client)
        stack.push_async_callback(found.close)
        for program in catalog.programs:
            for _ in range(num_replicas):
                await found.start_worker(program)
        yield found


def num_descriptors() -> int:
    """Descriptors that this process holds."""
    return len(os.listdir("/proc/self/fd"))
