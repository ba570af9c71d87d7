"""An orchestrator that loses its lead before its programs are ready ends: their replicas go to the next leader."""

import asyncio
import io
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from dyorc.authoring.program import Program
from dyorc.config import Settings
from dyorc.deployment.loaded_versions import Places
from dyorc.errors import LeadLostError
from dyorc.leader_election.leader import LeaderTerm
from dyorc.server import orchestrator_process, runtime
from dyorc.server.stop_signals import StopSignals
from dyorc.transport.cluster_network import LOCAL_NODE
from tests.deadlines import TIMEOUT_S


class _NoReplicas:
    """Starts no replica, and learns of another leader meanwhile."""

    network = None
    node = LOCAL_NODE
    plans: Mapping[str, str] = {}

    def __init__(self, folder: Path, lead: LeaderTerm) -> None:
        self.replicas = self
        self.link_address = f"unix://{folder}/link"
        self._lead = lead

    async def __aenter__(self) -> "_NoReplicas":
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    async def deploy(self, address: str) -> None:
        self._lead.report_fence(self._lead.fence + 1)

    def scale(self, program: str, num_processes: int) -> None:
        pass

    async def complaints(self) -> Mapping[str, str]:
        return {}

    async def add(self, places: Places) -> None:
        pass

    async def remove(self, program: Program) -> None:
        pass

    def end_replica(self, pid: int) -> None:
        pass


async def _connect_nowhere(settings: Settings, *, without_ray: bool) -> None:
    pass


async def test_it_ends_although_no_program_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "ray_host", lambda imports, programs, settings, start, spans, lead: _NoReplicas(tmp_path, lead))
    monkeypatch.setattr(orchestrator_process, "connect_ahead", _connect_nowhere)
    settings = Settings(
        store=f"sqlite://{tmp_path}/store.db", deployment={"ray_address": "nowhere"}, transport={"arena_folder": str(tmp_path)}
    )
    target, console = "tests.workflows.arithmetic:quadruple", Console(file=io.StringIO())
    with pytest.raises(LeadLostError, match="with fence 2"):
        async with asyncio.timeout(TIMEOUT_S / 4):
            await orchestrator_process.serve_group([target], settings, console, StopSignals(), lambda: None)
