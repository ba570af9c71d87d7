"""A process of the storm: imports everything, waits to be told its part, and plays it until it is killed.

``python -m tests.chaos.storm_process``, with one line of JSON (`Part`) on its input. It ends when its input does.
"""

import asyncio
import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

import msgspec
import uvloop
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from dyorc.config import EngineConfig, GatewayConfig, LinkConfig, OrchestratorConfig, TransportConfig
from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.http_server import HttpServer
from dyorc.gateway.service import InferenceService
from dyorc.models.registry import ModelRegistry
from dyorc.orchestrator.link_fleet import Site
from dyorc.orchestrator.linked_orchestrator import linked_orchestrator
from dyorc.replica.assignment import Identity, Uplink
from dyorc.replica.worker import Worker
from tests.workflows import checksummed

MODULE = "tests.chaos.storm_process"
ORCHESTRATOR = "orchestrator"
LINK = LinkConfig(heartbeat_interval_s=0.2, heartbeat_timeout_s=1.0, announce_interval_s=0.05, kill_after_s=1.5)
REQUEST_TIMEOUT_S = 120.0

_REPERTOIRE = ModelRegistry.of([checksummed.checked, checksummed.made, checksummed.sent, checksummed.paired, checksummed.recited])


class Part(msgspec.Struct, frozen=True):
    """The part of a process: the orchestrator, or a replica of the program `role`."""

    role: str
    replica_id: str
    address: str
    port: int
    arena_folder: str
    arena_bytes: int

    @property
    def transport(self) -> TransportConfig:
        """Settings with small arenas in a folder of their own."""
        return TransportConfig(
            arena_bytes=self.arena_bytes, arena_folder=self.arena_folder, arena_wait_s=2.0, inline_limit_bytes=16 * 1024
        )


class _Gateway(Gateway):
    """A gateway that also says which replicas the orchestrator knows."""

    def __init__(self, service: InferenceService) -> None:
        super().__init__(service)
        self._orchestrator = service.backend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/storm":
            pids = [pid for one in self._orchestrator.status.programs.values() for pid in one.replica_pids.values()]
            content = {"pid": os.getpid(), "replica_pids": pids}
            await JSONResponse(content | self._orchestrator.report())(scope, receive, send)
            return
        await super().__call__(scope, receive, send)


def _end(pid: int) -> None:
    """Kills a replica that was given up."""
    with contextlib.suppress(OSError):
        if MODULE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


async def _orchestrate(part: Part) -> None:
    config = GatewayConfig(port=part.port, drain_timeout_s=1)
    engine = EngineConfig(request_timeout_s=REQUEST_TIMEOUT_S)
    site = Site(address=part.address, link=LINK, transport=part.transport, node="here", end=_end)
    async with linked_orchestrator(_REPERTOIRE, OrchestratorConfig(engine=engine), site) as (orchestrator, _):
        service = InferenceService(orchestrator, config)
        async with HttpServer(_Gateway(service), config, service.shedding):
            await asyncio.Event().wait()


def _replicate(part: Part) -> None:
    program = next(program for program in _REPERTOIRE.programs if program.name == part.role)
    identity = Identity(replica_id=part.replica_id, program=program.name, node="here")
    worker = Worker(lambda: program, identity, Uplink(address=part.address, link=LINK, transport=part.transport))
    worker.start()
    threading.Event().wait()


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    """Runs until the process is ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the process that started it
    line = sys.stdin.readline()
    if not line:
        return
    part = msgspec.json.decode(line, type=Part)
    threading.Thread(target=_end_with_input, daemon=True).start()
    if part.role == ORCHESTRATOR:
        uvloop.run(_orchestrate(part))
    else:
        _replicate(part)


if __name__ == "__main__":
    main()
