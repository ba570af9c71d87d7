"""Replicas in processes of their own that stop, die and come back, and orchestrators that start again."""

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from pathlib import Path

import numpy as np

from dyorc.config import OrchestratorConfig
from dyorc.models.registry import ModelRegistry
from dyorc.orchestrator.link_fleet import Site
from dyorc.orchestrator.linked_orchestrator import linked_orchestrator
from dyorc.replica.assignment import Identity, Uplink
from dyorc.replica.worker import Worker
from tests import oip
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.integration.stack import FAST_LINK, FAST_TRANSPORT, Stack, running
from tests.workflows import arithmetic, faulty, slow

_NUM_CLIENTS = 16
_TARGET = f"{Path(arithmetic.__file__)}:quadruple"
X = np.array([1, 2, 3, 4], np.float32)


async def _send_until(stack: Stack, is_enough: asyncio.Event, client: int, latencies_s: list[float]) -> int:
    """Runs one client, which sends one request after the other and checks every answer. Returns their number."""
    num = 0
    while not is_enough.is_set():
        x = np.array([client, num, 1, -1], np.float32)
        started_s = time.monotonic()
        (y,) = await stack.orchestrator.infer(submission(arithmetic.quadruple, [x]))
        latencies_s.append(time.monotonic() - started_s)
        np.testing.assert_array_equal(y, x * 4)
        num += 1
        await asyncio.sleep(0.002)  # keeps the load small
    return num


async def test_a_stopped_replica_is_noticed_by_its_silence_and_no_request_is_lost() -> None:
    """After SIGSTOP the process exists and its connection is open, but nothing comes."""
    async with running([arithmetic.quadruple], num_replicas=0) as stack:
        first = await stack.start_process(_TARGET, arithmetic.double, "first")
        await stack.start_process(_TARGET, arithmetic.double, "second")
        status, is_enough, latencies_s = stack.status(arithmetic.double), asyncio.Event(), list[float]()
        clients = [asyncio.create_task(_send_until(stack, is_enough, at, latencies_s)) for at in range(_NUM_CLIENTS)]
        await wait_until_async(lambda: len(latencies_s) > 200, "the first answers")
        os.kill(first.pid, signal.SIGSTOP)
        stopped_s = time.monotonic()
        await wait_until_async(lambda: "first" not in status.replica_pids, "the silence is noticed")
        noticed_s = time.monotonic() - stopped_s
        num_before = len(latencies_s)
        await wait_until_async(lambda: len(latencies_s) > num_before + 200, "the other replica serves")
        os.kill(first.pid, signal.SIGCONT)
        await stack.wait_for_replica(arithmetic.double, "first")
        num_before = len(latencies_s)
        await wait_until_async(lambda: len(latencies_s) > num_before + 200, "both serve")
        is_enough.set()
        num = sum(await asyncio.gather(*clients))
        print(f"\n{num} requests, 0 lost; silence noticed after {noticed_s:.2f} s; slowest answer {max(latencies_s):.2f} s")


async def test_a_killed_replica_is_noticed_at_once_and_no_request_is_lost() -> None:
    async with running([arithmetic.quadruple], num_replicas=0) as stack:
        for replica_id in ("first", "second"):
            await stack.start_process(_TARGET, arithmetic.double, replica_id)
        status, is_enough, latencies_s = stack.status(arithmetic.double), asyncio.Event(), list[float]()
        clients = [asyncio.create_task(_send_until(stack, is_enough, at, latencies_s)) for at in range(_NUM_CLIENTS)]
        for victim in ("first", "second", "third"):
            await wait_until_async(lambda: len(latencies_s) > 100, "answers")
            stack.processes[victim].kill()
            killed_s = time.monotonic()
            await wait_until_async(lambda victim=victim: victim not in status.replica_pids, "the death is noticed")
            print(f"\ndeath of {victim} noticed after {time.monotonic() - killed_s:.3f} s")
            if victim != "third":
                await stack.start_process(_TARGET, arithmetic.double, {"first": "third", "second": "fourth"}[victim])
            latencies_s.clear()
        await wait_until_async(lambda: len(latencies_s) > 100, "answers")
        is_enough.set()
        assert sum(await asyncio.gather(*clients)) > 400
        assert set(status.replica_pids) == {"fourth"}


async def test_requests_wait_while_there_is_no_replica() -> None:
    async with running([arithmetic.quadruple], num_replicas=0) as stack:
        process = await stack.start_process(_TARGET, arithmetic.double, "first")
        process.kill()
        await wait_until_async(lambda: not stack.status(arithmetic.double).replica_pids, "the death is noticed")
        assert (await stack.client.get("/v2/health/ready")).status_code == 503
        waiting = asyncio.create_task(stack.orchestrator.infer(submission(arithmetic.quadruple, [X])))
        await wait_until_async(lambda: stack.orchestrator.num_requests == 1, "it is in flight")
        await stack.start_process(_TARGET, arithmetic.double, "second")
        np.testing.assert_array_equal((await waiting)[0], X * 4)
        assert (await stack.client.get("/v2/health/ready")).status_code == 200


async def test_a_call_that_kills_every_replica_is_given_up_and_its_neighbours_are_not() -> None:
    target = f"{Path(faulty.__file__)}:deadly"
    async with running([faulty.deadly], num_replicas=0) as stack:
        inputs = [np.full(4, -1 if number == 3 else number, np.float32) for number in range(8)]
        bodies = [oip.json_body({"x": x}) for x in inputs]
        answering = [asyncio.create_task(stack.client.post("/v2/models/deadly/infer", content=body.content)) for body in bodies]
        await wait_until_async(lambda: stack.orchestrator.num_requests == 8, "they wait")
        finished = asyncio.gather(*answering)
        num_deaths = 0
        while True:
            process = stack.spawn(target, faulty.deadly_program, f"replica-{num_deaths}")
            await wait_until_async(lambda process=process: finished.done() or process.poll() is not None, "an answer or a death")
            if finished.done():
                break
            num_deaths += 1
        answers = await finished
    print(f"\n{num_deaths} replicas died; {[answer.status_code for answer in answers]}")
    assert num_deaths == 3
    assert answers[3].status_code == 500
    killed = "program 'deadly_program' lost 3 replicas while running this call (its process was killed by signal 9, SIGKILL)"
    assert killed in oip.error_text(answers[3])
    for number, answer in enumerate(answers):
        if number != 3:
            np.testing.assert_array_equal(oip.read(answer).outputs["output"], inputs[number] + 1)


async def test_a_new_orchestrator_finds_the_replicas_of_the_old_one() -> None:
    """Replicas outlive the orchestrator: they announce themselves again and are used without a restart."""
    programs = (arithmetic.double, slow.resting_program)
    repertoire = ModelRegistry.of([arithmetic.quadruple, slow.resting])
    with tempfile.TemporaryDirectory(prefix="dyorc-") as folder:
        address = f"unix://{folder}/link"
        site = Site(address=address, link=FAST_LINK, transport=FAST_TRANSPORT, node="here")
        uplink = Uplink(address=address, link=FAST_LINK, transport=FAST_TRANSPORT)
        workers: list[Worker] = []
        pids: dict[str, int] = {}
        try:
            async with linked_orchestrator(repertoire, OrchestratorConfig(), site) as (first, _):
                for at, program in enumerate(programs):
                    identity = Identity(replica_id=f"replica-{at}", program=program.name, node="here")
                    worker = Worker(lambda program=program: program, identity, uplink)
                    workers.append(worker)
                    await asyncio.to_thread(worker.start)
                await wait_until_async(lambda: first.status.is_ready, "both are there")
                np.testing.assert_array_equal((await first.infer(submission(arithmetic.quadruple, [X])))[0], X * 4)
                # A batch is on its way while the orchestrator ends.
                lost = asyncio.create_task(first.infer(submission(slow.resting, [X], (0.3,))))
                await wait_until_async(lambda: first.num_requests == 1, "it is in flight")
            with contextlib.suppress(Exception):
                await lost
            ended_s = time.monotonic()
            async with linked_orchestrator(repertoire, OrchestratorConfig(), site) as (second, _):
                await wait_until_async(lambda: second.status.is_ready, "both replicas are back")
                print(f"\nfound again after {time.monotonic() - ended_s:.2f} s")
                np.testing.assert_array_equal((await second.infer(submission(arithmetic.quadruple, [X])))[0], X * 4)
                np.testing.assert_array_equal((await second.infer(submission(slow.resting, [X], (0.01,))))[0], X + 1)
                pids = {name: next(iter(one.replica_pids.values())) for name, one in second.status.programs.items()}
            assert set(pids.values()) == {os.getpid()}
        finally:
            for worker in workers:
                await asyncio.to_thread(worker.stop)
