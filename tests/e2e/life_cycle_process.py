"""A server on Ray that parks, warms and scales its program while clients send. Prints one word when all requests were answered.

``python -m tests.e2e.life_cycle_process``
"""

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import numpy as np

from dyorc.authoring.loading import load
from dyorc.authoring.workflow import Workflow
from dyorc.models.registry import ModelRegistry
from dyorc.models.status import ReplicaState
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.ray_serve.ray_home import HeadStart
from dyorc.ray_serve.user_imports import UserImports
from dyorc.replica.assignment import ProgramSource
from dyorc.scaling.model import ReplicaCounts
from dyorc.server.runtime import on_ray
from dyorc.settings.settings_reader import read_settings
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.workflows import weights

_TARGET = f"{Path(weights.__file__)}:fourfold"
_NUM_CLIENTS = 3
_TIMEOUT_S = 120.0


class Clients:
    """Clients that send one request after the other and check every answer."""

    def __init__(self, orchestrator: Orchestrator, workflow: Workflow) -> None:
        self._orchestrator = orchestrator
        self._workflow = workflow
        self._is_enough = False
        self.num_answers = 0

    @contextlib.asynccontextmanager
    async def sending(self) -> AsyncGenerator[None]:
        async with asyncio.TaskGroup() as group:
            for client in range(_NUM_CLIENTS):
                group.create_task(self._send(client))
            yield
            self._is_enough = True

    async def _send(self, client: int) -> None:
        for number in itertools.count():
            if self._is_enough:
                return
            x = np.array([client, number, 1, -1], np.float32)
            (y,) = await self._orchestrator.infer(submission(self._workflow, [x]))
            np.testing.assert_array_equal(y, x * 4)
            self.num_answers += 1
            await asyncio.sleep(0.005)

    async def more(self) -> None:
        enough = self.num_answers + 20
        await wait_until_async(lambda: self.num_answers >= enough, "more answers come")


async def main() -> None:
    with HeadStart() as start:
        workflow = load(_TARGET)  # as a server does: it is not the workflow of the module imported above
        assert isinstance(workflow, Workflow)
        (program,) = workflow.programs
        source = ProgramSource(folder=os.getcwd(), target=_TARGET, program=program.name)
        imports = UserImports.since(frozenset(), [_TARGET])
        async with on_ray(ModelRegistry.of([workflow]), {program: source}, read_settings(), imports, start) as running:
            orchestrator = running.orchestrator
            await running.deploy()
            await scale_up_and_down(orchestrator, Clients(orchestrator, workflow))


async def scale_up_and_down(orchestrator: Orchestrator, clients: Clients) -> None:
    status = orchestrator.status.programs["weighted"]

    async def reach(num_warm: int, num_parked: int) -> None:
        orchestrator.want("weighted", num_warm, num_parked)
        wanted = ReplicaCounts(warm=num_warm, parked=num_parked)
        await wait_until_async(lambda: status.counts() == wanted, f"there are {wanted}", timeout_s=_TIMEOUT_S)

    async with clients.sending():
        await clients.more()
        await reach(1, 1)  # Serve starts a second one
        await clients.more()
        await reach(2, 0)
        await clients.more()
        await reach(0, 2)
        orchestrator.want("weighted", 1, 1)
        await clients.more()
        (parked,) = status.of_state(ReplicaState.PARKED)
        os.kill(parked.pid, signal.SIGKILL)
        await wait_until_async(lambda: parked.replica_id not in status.replicas, "its death is noticed")
        await clients.more()
        await reach(1, 1)  # Serve replaces it
        await reach(0, 0)
        orchestrator.want("weighted", 1, 0)
        await clients.more()
    print("answered", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
