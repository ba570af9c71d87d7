"""DyOrc's side: replicas of the program, forked from a fork server that is there or not, until they have joined."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import benchmarks.focused.coldstart.program as program
from dyorc.config import LinkConfig, OrchestratorConfig, TransportConfig
from dyorc.models.registry import ModelRegistry
from dyorc.models.status import ProgramStatus, ReplicaState
from dyorc.orchestrator.link_fleet import Site
from dyorc.orchestrator.linked_orchestrator import linked_orchestrator
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.replica.assignment import ForkServerSpec, Identity, ProgramSource, ReplicaAssignment, Uplink, new_replica_id
from dyorc.replica.fork_client import ForkClient, ReplicaHandle

_NODE = "here"
_LIBRARIES = ("safetensors.torch", "jaxtyping")
_END_S = 10.0


@dataclass(frozen=True, slots=True)
class Starts:
    """What was measured.

    Attributes:
        cold_s: From the decision to a routable replica, if there is no fork server yet.
        fork_s: The same, if there is one.
        parked_s: The same, if the replica is parked: its process is up and has imported everything.
        first_bytes: Memory that only the first replica uses (`Private` in ``smaps_rollup``), while it is alone.
        second_bytes: What the second one adds: the growth of all proportional shares (`Pss`) together.
        second_own_bytes: Memory that only the second replica uses.
    """

    cold_s: float
    fork_s: float
    parked_s: float
    first_bytes: int
    second_bytes: int
    second_own_bytes: int


async def measure(folder: Path, weights: Path) -> Starts:
    """Starts two replicas, the first without a fork server; then parks one and warms it again."""
    uplink = Uplink(address=f"unix://{folder}/link", link=LinkConfig(), transport=TransportConfig())
    client = ForkClient(ForkServerSpec(folder=f"{folder}/forks", modules=_LIBRARIES))
    async with _orchestrator(uplink) as orchestrator, contextlib.AsyncExitStack() as stack:
        stack.callback(client.close, _END_S)
        cold_s, first = await _start(client, uplink, weights, orchestrator)
        stack.callback(first.end, _END_S)
        # The fork server shares pages with its replicas: their proportional shares are counted together.
        first_bytes, before = _private_bytes(first.process.pid), _shares(client, first)
        fork_s, second = await _start(client, uplink, weights, orchestrator)
        stack.callback(second.end, _END_S)
        added = _shares(client, first, second) - before
        second_own_bytes = _private_bytes(second.process.pid)
        parked_s = await _park_and_warm(orchestrator)
        return Starts(cold_s, fork_s, parked_s, first_bytes, added, second_own_bytes)


@contextlib.asynccontextmanager
async def _orchestrator(uplink: Uplink) -> AsyncGenerator[Orchestrator]:
    site = Site(address=uplink.address, link=uplink.link, transport=uplink.transport, node=_NODE)
    async with linked_orchestrator(ModelRegistry.of([program.cold]), OrchestratorConfig(), site) as (orchestrator, _):
        yield orchestrator


async def _start(client: ForkClient, uplink: Uplink, weights: Path, orchestrator: Orchestrator) -> tuple[float, ReplicaHandle]:
    name = program.cold.name
    assignment = ReplicaAssignment(
        source=ProgramSource(folder=str(Path.cwd()), target=f"{program.__file__}:{name}", program=name),
        identity=Identity(replica_id=new_replica_id(name), program=name, node=_NODE),
        uplink=uplink, num_threads=1, graceful_s=1.0, environment={program.WEIGHTS: str(weights)},
    )  # fmt: skip
    num_wanted = len(_status(orchestrator).replica_pids) + 1
    started_s = time.perf_counter()
    holder = await asyncio.to_thread(client.fork, assignment, is_adopted=True)
    await _reach(orchestrator, num_wanted, 0)
    return time.perf_counter() - started_s, holder


async def _park_and_warm(orchestrator: Orchestrator) -> float:
    """Returns how long it takes from the decision to warm the second replica until it has joined."""
    orchestrator.want(program.cold.name, 1, 1)
    await _reach(orchestrator, 1, 1)
    started_s = time.perf_counter()
    orchestrator.want(program.cold.name, 2, 0)
    await _reach(orchestrator, 2, 0)
    return time.perf_counter() - started_s


async def _reach(orchestrator: Orchestrator, num_warm: int, num_parked: int) -> None:
    """Waits until so many replicas take batches, and so many have dropped their program."""
    status = _status(orchestrator)
    while [len(status.of_state(state)) for state in (ReplicaState.READY, ReplicaState.PARKED)] != [num_warm, num_parked]:
        await orchestrator.status.wait_for_change(1.0)


def _status(orchestrator: Orchestrator) -> ProgramStatus:
    return orchestrator.status.programs[program.cold.name]


def _shares(client: ForkClient, *holders: ReplicaHandle) -> int:
    """Returns the memory of the fork server and of replicas, pages that they share counted once."""
    pids = [holder.process.pid for holder in holders]
    parent = int(Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1])
    return sum(_rollup(pid, "Pss") for pid in (parent, *pids))


def _private_bytes(pid: int) -> int:
    return _rollup(pid, "Private_Clean") + _rollup(pid, "Private_Dirty")


def _rollup(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
