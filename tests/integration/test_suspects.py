"""A real replica that segfaults on one input: how many replicas that costs, and which error the caller gets."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest

from dyorc.authoring.program import Program
from dyorc.client import AsyncClient
from dyorc.errors import SuspectInputError
from dyorc.store.sqlite import SqliteStore
from dyorc.transport.arena_file import sweep
from tests import oip
from tests.deadlines import wait_until_async
from tests.integration.stack import FAST_TRANSPORT, Stack, running
from tests.workflows import faulty

SEGFAULT = "its process was killed by signal 11, SIGSEGV"


def vector(number: float) -> oip.Array:
    """Returns an input; a negative number kills its replica."""
    return np.full(4, number, np.float32)


async def infer(client: httpx.AsyncClient, model: str, number: float) -> httpx.Response:
    """Sends one request."""
    body = oip.json_body({"x": vector(number)})
    return await client.post(f"/v2/models/{model}/infer", content=body.content, headers=body.headers)


@dataclass
class Keeper:
    """Keeps a number of replicas of one program running, as Ray Serve does; counts the runs that end."""

    stack: Stack
    program: Program
    num_replicas: int
    num_deaths: int = 0
    num_started: int = 0
    least_there: int = 1_000
    """The fewest replicas that ran at a time, since all of them first did."""

    async def keep(self) -> None:
        """Runs until it is cancelled."""
        target = f"{Path(faulty.__file__)}:{self.program.name.removesuffix('_program')}"
        replicas = [self._start(target) for _ in range(self.num_replicas)]
        was_full = False
        while True:
            num_there = len(self.stack.status(self.program).replica_pids)
            was_full = was_full or num_there == self.num_replicas
            if was_full:
                self.least_there = min(self.least_there, num_there)
            for at, replica in enumerate(replicas):
                if replica.poll() is not None:
                    self.num_deaths += 1
                    replicas[at] = self._start(target)
            await asyncio.sleep(0.01)

    async def check_deaths(self, number: int) -> None:
        """Waits until exactly this many replicas have ended."""
        await wait_until_async(lambda: self.num_deaths >= number, f"{number} deaths are seen")
        assert self.num_deaths == number

    def _start(self, target: str) -> "subprocess.Popen[bytes]":
        self.num_started += 1
        return self.stack.spawn(target, self.program, f"replica-{self.num_started}")


@contextlib.asynccontextmanager
async def kept(model: str, program: Program, num_replicas: int, store: SqliteStore | None = None) -> AsyncGenerator[Keeper]:
    """Starts a server with replicas in processes of their own, and waits until all of them run."""
    workflow = getattr(faulty, model)
    async with running([workflow], num_replicas=0, store=store) as stack:
        keeper = Keeper(stack, program, num_replicas)
        keeping = asyncio.create_task(keeper.keep())
        try:
            await wait_until_async(lambda: len(stack.status(program).replica_pids) == num_replicas, "the replicas are there")
            yield keeper
            await wait_until_async(lambda: len(stack.status(program).replica_pids) == num_replicas, "they are back")
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping
    sweep(FAST_TRANSPORT.arena_folder)  # the killed replicas' arenas, as the next process does that starts


async def test_an_input_that_segfaults_costs_two_replicas_and_its_neighbours_are_answered(
    tmp_path: Path,
) -> None:
    async with kept("crashing", faulty.crashing_program, 1, SqliteStore(tmp_path / "jobs.sqlite")) as keeper:
        client = keeper.stack.client
        sent = [asyncio.create_task(infer(client, "crashing", -1 if number == 3 else number)) for number in range(8)]
        answers = await asyncio.gather(*sent)
        for number, answer in enumerate(answers):
            if number != 3:
                np.testing.assert_array_equal(oip.read(answer).outputs["output"], vector(number + 1))
        bad = answers[3]
        assert (bad.status_code, bad.json()["code"], bad.json()["retryable"]) == (500, "suspect_input", False)
        assert "retry-after" not in bad.headers
        assert oip.error_text(bad).startswith(
            f"program 'crashing_program' lost 2 replicas while running this call ({SEGFAULT}); it is not run again"
        )
        await keeper.check_deaths(2)

        again = await infer(client, "crashing", -1)
        assert again.status_code == 500
        assert f"program 'crashing_program' lost replicas to an equal request ({SEGFAULT})" in oip.error_text(again)

        async with AsyncClient(str(client.base_url)) as own:
            with pytest.raises(SuspectInputError, match="signal 11, SIGSEGV"):
                await own.infer("crashing", x=vector(-2))
        await keeper.check_deaths(4)

        body = oip.json_body({"x": vector(-3)}, model_name="crashing")
        job = (await client.post("/v1/jobs", content=body.content, headers=body.headers)).json()
        while job["state"] in ("queued", "running"):
            job = (await client.get(f"/v1/jobs/{job['id']}", params={"wait_s": 10})).json()
        assert (job["state"], job["num_attempts"], job["error"]["code"]) == ("failed", 1, "suspect_input")
        good = await infer(client, "crashing", 5)
        np.testing.assert_array_equal(oip.read(good).outputs["output"], vector(6))
        await keeper.check_deaths(6)


async def test_with_two_replicas_one_always_serves() -> None:
    async with kept("crashing_pair", faulty.crashing_pair_program, 2) as keeper:
        client = keeper.stack.client
        bad = asyncio.create_task(infer(client, "crashing_pair", -1))
        num_good = 0
        while not bad.done():
            answer = await infer(client, "crashing_pair", num_good)
            np.testing.assert_array_equal(oip.read(answer).outputs["output"], vector(num_good + 1))
            num_good += 1
        assert (await bad).json()["code"] == "suspect_input"
        print(f"\n{num_good} good requests were answered meanwhile, at least {keeper.least_there} replica was there")
        await keeper.check_deaths(2)
        assert keeper.least_there == 1
        assert num_good > 10


async def test_the_error_names_the_exit_code_of_a_process_that_ended_by_itself() -> None:
    async with kept("exiting", faulty.exiting_program, 1) as keeper:
        answer = await infer(keeper.stack.client, "exiting", -1)
        assert "(its process ended with exit code 3)" in oip.error_text(answer)
        await keeper.check_deaths(2)
