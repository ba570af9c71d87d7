"""A client that was used before its process forked gives each of the two processes its own answers."""

import asyncio
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.store.sqlite import SqliteStore
from tests.deadlines import TIMEOUT_S
from tests.integration.stack import running


async def _num_wrong(*arguments: str) -> str:
    """Runs a client that forks; returns how many answers were not those of the process that asked."""
    command = (sys.executable, "-W", "error", "-m", "tests.integration.forking_client", *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    assert process.returncode == 0
    return output.decode().strip()


@pytest.mark.parametrize("kind", ["infer", "stream", "jobs", "asyncio"])
async def test_answers_are_those_of_the_process_that_asked(kind: str, tmp_path: Path) -> None:
    @dyorc.program(max_batch_size=8)
    def double(x: Float[np.ndarray, "batch 1"]) -> Float[np.ndarray, "batch 1"]:
        time.sleep(0.003)  # so that both have asked before either is answered
        return x * 2

    @dyorc.workflow(name="flow")
    async def flow(x: Float[np.ndarray, "1"]) -> Float[np.ndarray, "1"]:
        return await double(x)

    async with running([flow], store=SqliteStore(tmp_path / "jobs")) as stack:
        assert await _num_wrong(str(stack.client.base_url), kind) == "0"
