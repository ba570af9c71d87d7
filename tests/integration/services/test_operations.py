"""An orchestrator's operations port: a standby lives and is not ready, a leader is ready when its programs are."""

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx

from dyorc.config import ClusterConfig, Settings
from dyorc.leader_election.leadership import Leadership
from dyorc.models.status import StatusBoard
from dyorc.server.operations_port import LeaderRole, serve_operations
from dyorc.store.opening import store_of
from tests.deadlines import TIMEOUT_S
from tests.workflows.arithmetic import double

SETTINGS = Settings(cluster=ClusterConfig(operations_port=0))


@contextlib.asynccontextmanager
async def client_of(role: LeaderRole) -> AsyncGenerator[httpx.AsyncClient]:
    """Returns a client of the operations port of an orchestrator."""
    async with (
        serve_operations(role, SETTINGS) as url,
        httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, trust_env=False) as client,
    ):
        yield client


async def test_a_standby_lives_and_is_not_ready(tmp_path: Path) -> None:
    async with store_of(f"sqlite://{tmp_path}/store.db") as store, Leadership(store, "nets", 3.0) as leadership:
        role = LeaderRole(leadership)
        async with client_of(role) as client:
            assert (await client.get("/v2/health/live")).status_code == 200
            found = await client.get("/v2/health/ready")
            assert found.status_code == 503
            assert found.json()["error"] == "this orchestrator does not lead group 'nets'; it stands by"
            assert 'dyorc_leads{group="nets"} 0.0' in (await client.get("/metrics")).text


async def test_a_leader_is_ready_when_its_programs_are(tmp_path: Path) -> None:
    status = StatusBoard([double])
    async with store_of(f"sqlite://{tmp_path}/store.db") as store, Leadership(store, "nets", 3.0) as leadership:
        role = LeaderRole(leadership)
        await leadership.win()
        async with client_of(role) as client:
            with role.serving(status):
                found = await client.get("/v2/health/ready")
                assert found.status_code == 503
                assert "program 'double' is starting" in found.json()["error"]
                status.joined("double", "double-0", 1)
                assert (await client.get("/v2/health/ready")).status_code == 200
                metrics = (await client.get("/metrics")).text
                assert 'dyorc_leads{group="nets"} 1.0' in metrics
                assert 'dyorc_leadership_fence{group="nets"} 1.0' in metrics
                assert "dyorc_process_memory_bytes" in metrics
