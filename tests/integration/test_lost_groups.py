"""A group of processes that is lost: the orchestrator, and whoever asked, learn why."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from dyorc.config import LinkConfig, OrchestratorConfig, TransportConfig
from dyorc.errors import EffectLostError
from dyorc.models.registry import ModelRegistry
from dyorc.orchestrator.link_fleet import Site
from dyorc.orchestrator.linked_orchestrator import linked_orchestrator
from dyorc.planner.cluster import even_cluster
from dyorc.planner.plan.plan_file import write_plan
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import capture_inference
from dyorc.planner.verify import mark_proved
from dyorc.replica.assignment import ForkServerSpec, Identity, ProgramSource, ReplicaAssignment, Uplink
from dyorc.replica.fork_client import ForkClient
from tests.asking import submission
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.server_process import target
from tests.workflows import split


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short path, as sockets need; holds a net's weights and its plan."""
    found = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    torch.manual_seed(0)
    save_file(split.Net().state_dict(), found / "net.safetensors")
    program = capture_inference(split.Net(), (torch.zeros(4, 6, dtype=torch.int64),))
    write_plan(mark_proved(program, PLANNERS["megatron"](program, even_cluster(2))), found / "net.plan")
    yield found
    shutil.rmtree(found)


@pytest.fixture
def client(folder: Path) -> Iterator[ForkClient]:
    """Keeps a fork server."""
    found = ForkClient(ForkServerSpec(folder=f"{folder}/forks"))
    found.open()
    yield found
    found.close(TIMEOUT_S)


def _assignment(folder: Path) -> ReplicaAssignment:
    plan = {"plan": str(folder / "net.plan")}
    uplink = Uplink(address=f"unix://{folder}/link", link=LinkConfig(), transport=TransportConfig(arena_folder=str(folder)))
    return ReplicaAssignment(
        source=ProgramSource(folder=str(folder), target=target("split", "net"), program="net", overrides=plan),
        identity=Identity(replica_id="net#1", program="net", node="here"),
        uplink=uplink,
        num_threads=1,
        graceful_s=1.0,
        environment={"NET_FOLDER": str(folder)},
    )


async def test_why_a_group_is_lost_is_told_to_whoever_asked(folder: Path, client: ForkClient) -> None:
    assignment = _assignment(folder)
    site = Site(address=assignment.uplink.address, link=LinkConfig(), transport=assignment.uplink.transport, node="here")
    async with linked_orchestrator(ModelRegistry.of([split.net]), OrchestratorConfig(), site) as (orchestrator, _):
        leader = client.fork(assignment, is_adopted=True)
        try:
            await wait_until_async(lambda: orchestrator.status.is_ready, "the group is there")
            (replica,) = orchestrator.status.programs["net"].replicas.values()
            os.kill(replica.members[1], signal.SIGSTOP)  # so that the batch does not end
            asking = asyncio.create_task(orchestrator.infer(submission(split.net, [np.zeros(6, np.int64)])))
            await wait_until_async((folder / "asked").exists, "the batch runs")
            os.kill(replica.members[1], signal.SIGKILL)
            with pytest.raises(EffectLostError, match=r"was lost \(rank 1 (of its group is gone: its process|has ended)"):
                await asking
        finally:
            leader.kill()
            leader.close()
