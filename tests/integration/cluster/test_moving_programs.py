"""Programs of a shared cell move between its loop and their threads, also while batches wait until gateways know of them."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import Int

import dyorc
from dyorc.answering.local_answers import own_arrays
from dyorc.cells.hosted_program import HostedProgram
from dyorc.cells.orchestrator_cell import make_shared_cell
from dyorc.config import Settings
from dyorc.models.registry import ModelRegistry
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.integration.cluster.ends import Told, gateway, gateway_server_of
from tests.integration.stack import FAST_TRANSPORT

pytestmark = pytest.mark.anyio

_NUM_REQUESTS = 40
noted: list[int] = []


@dyorc.program(max_batch_size=1, pure=False)
def note(x: Int[np.ndarray, " batch"]) -> Int[np.ndarray, " batch"]:
    noted.extend(x.tolist())
    return x


@dyorc.workflow
async def noting(x: Int[np.ndarray, ""]) -> Int[np.ndarray, ""]:
    return note(x)


async def test_no_effect_is_lost_or_repeated_when_its_program_moves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    noted.clear()
    moves: list[str] = []
    settle = HostedProgram._settle

    def settle_and_move(self: HostedProgram) -> None:
        """Moves whenever the program has no batch, while others may be held back before it."""
        settle(self)
        if not self._num_held:
            moves.append(self.replica_id)
            self.join()

    monkeypatch.setattr(HostedProgram, "_settle", settle_and_move)
    settings, told = Settings(transport=FAST_TRANSPORT), Told()
    async with (
        make_shared_cell(ModelRegistry.of([noting]), settings, "here", None) as orchestrator,
        gateway_server_of(orchestrator, f"unix://{tmp_path}/desk") as gateway_server,
        gateway(told) as backend,
    ):
        told.tell(gateway_server)
        await wait_until_async(lambda: backend.status.is_ready, "the program is ready")

        async def ask(number: int) -> int:
            (answer,) = await backend.infer(submission(noting, [np.asarray(number)]), take=own_arrays)
            return int(answer)

        answers = await asyncio.gather(*map(ask, range(_NUM_REQUESTS)))
    assert answers == list(range(_NUM_REQUESTS))
    assert sorted(noted) == answers
    assert len(moves) > 1, "it has not moved"
