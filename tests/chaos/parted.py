"""Orchestrators that take turns, and gateways that follow them."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import numpy as np

from dyorc.answering.local_answers import own_arrays
from dyorc.answering.tensor_exchange import Tensors
from dyorc.authoring.workflow import Workflow
from dyorc.cluster.remote_backend import RemoteBackend
from dyorc.config import LinkConfig
from dyorc.core.arrays import Array
from dyorc.leader_election.leader_discovery import LeaderDiscovery
from dyorc.store.opening import leases_of
from dyorc.transport.tensor_path import TensorExchange
from tests.asking import submission
from tests.chaos.parted_process import NODE
from tests.integration.stack import FAST_TRANSPORT, within

_REPOSITORY = Path(__file__).parents[2]


class Group:
    """Processes of one group.

    Args:
        folder: For the store and sockets.
    """

    def __init__(self, folder: Path, lease_s: float = 1.0) -> None:
        self.folder = folder
        self.lease_s = lease_s
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *, is_stubborn: bool = False) -> subprocess.Popen[bytes]:
        """Starts an orchestrator, which leads or stands by. A stubborn one goes on when it has lost its lead."""
        command = [sys.executable, "-m", "tests.chaos.parted_process", str(self.folder), FAST_TRANSPORT.arena_folder]
        command += [str(self.lease_s), *(["stubborn"] if is_stubborn else [])]
        process = subprocess.Popen(command, cwd=_REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def kill(self, pid: int) -> None:
        """Kills an orchestrator, and starts another that stands by."""
        os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            if process.pid == pid:
                process.wait()
        self.start()

    def close(self) -> None:
        """Kills all."""
        for process in self.processes:
            process.kill()
            process.wait()


@contextlib.asynccontextmanager
async def gateway(folder: Path, name: str, link: LinkConfig | None = None) -> AsyncGenerator[RemoteBackend]:
    """Runs a gateway's end while entered."""
    exchange = TensorExchange(name, NODE, FAST_TRANSPORT)
    async with leases_of(f"sqlite:///{folder}/store.db") as leases, LeaderDiscovery(leases, "default", 0.3) as leaders:
        with exchange:
            tensors = Tensors(exchange)
            tensors.open()
            try:
                async with RemoteBackend(leaders, tensors, link or LinkConfig()) as backend:
                    yield backend
            finally:
                tensors.close()


async def ask(
    backend: RemoteBackend, workflow: Workflow, inputs: list[Any], *statics: Any, timeout_s: float = 60.0
) -> list[Array]:
    """Runs a workflow."""
    arrays = [np.asarray(one) for one in inputs]
    return await backend.infer(submission(workflow, arrays, statics, within(60)), take=own_arrays)
