"""The load generator against servers that stall, answer wrongly, refuse, hang up or say nothing."""

import asyncio
import contextlib
import time

import msgspec
import numpy as np
import psutil
import pytest
from hdrh.histogram import HdrHistogram

from loadgen.errors import WorkerFailedError
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.progress import Progress
from loadgen.results import RunResult, ServerFigures
from loadgen.run import run
from loadgen.targets.base import TargetSpec
from tests.integration.odd_server import ANSWER, Answering, Asked, odd_server, refusal, reply

POOL = Pool(
    inputs=[{"x": np.full(4, number, np.float32)} for number in range(5)], answers=[ANSWER] * 5, branches=["a"] * 4 + ["b"]
)
LOAD = Load(arrivals="constant", rate_rps=100, warm_up_s=0.2, duration_s=1, drain_s=60)
REPLY = reply()


async def measured(answering: Answering, load: Load = LOAD, *, pool: Pool = POOL, max_connections: int = 64) -> RunResult:
    """Returns the result of a load on such a server."""
    async with odd_server(answering) as server:
        spec = TargetSpec(
            protocol="http", url=server.url, model="odd", max_connections=max_connections, headers={"x-key": "secret"}
        )
        return await asyncio.to_thread(run, "odd", spec, pool, load)


async def right(asked: Asked) -> bytes:
    return REPLY


async def test_every_request_is_sent_once_and_answered() -> None:
    async with odd_server(right) as server:
        spec = TargetSpec(protocol="http", url=server.url, model="odd", headers={"X-Key": "secret"})
        load = msgspec.structs.replace(LOAD, num_workers=2, slo_s=60.0)
        result = await asyncio.to_thread(run, "odd", spec, POOL, load)
        asked = server.asked
    assert (result.counts.planned, result.counts.correct, result.counts.within_slo) == (100, 100, 100)
    assert (result.goodput_ratio, result.throughput_rps, result.num_workers) == (1.0, 100.0, 2)
    assert len(asked) == 119  # includes those of the warm-up, but not the one that is due as it ends
    assert all(b"x-key: secret" in one.head for one in asked)
    assert len({one.body for one in asked}) == 5
    assert {name: one.num_requests for name, one in result.branches.items()} == {"a": 80, "b": 20}
    assert b"secret" not in msgspec.json.encode(result)


async def test_a_stall_delays_all_requests_that_were_due_meanwhile() -> None:
    """The stall lasts half a second: a closed loop of one sees it once; an open loop has the requests that would have come
    meanwhile. All limits are lower ones, which a busy machine does not break.
    """
    load = Load(arrivals="constant", rate_rps=200, warm_up_s=0, duration_s=2)
    for max_connections in (4, 1000):
        stall = Stall()
        result = await measured(stall, load, max_connections=max_connections)
        assert (result.counts.correct, result.counts.planned) == (399, 399)
        assert slow_ratio(result) >= 0.15  # 80 of 400 waited longer than 0.1 s
        assert result.latency_ms.p90 > 200
        assert result.latency_ms.max > 450
    stall = Stall()
    closed = await measured(stall, Load(arrivals="closed", num_clients=1, warm_up_s=0, duration_s=2))
    assert stall.num_held == 1
    assert closed.latency_ms.max > 450


class Stall:
    """A server that stands still for half a second once it is asked for the fifth time.

    Attributes:
        num_held: Requests that came meanwhile, the fifth one included.
    """

    def __init__(self) -> None:
        self.num_held = 0
        self._over: asyncio.Task[None] | None = None

    async def __call__(self, asked: Asked) -> bytes:
        """Answers one request."""
        if asked.number == 4:
            self._over = asyncio.create_task(asyncio.sleep(0.5))
        if self._over is not None and not self._over.done():
            self.num_held += 1
            await asyncio.shield(self._over)
        return REPLY


def slow_ratio(result: RunResult, limit_us: int = 100_000) -> float:
    """Returns which fraction of the requests took longer."""
    histogram = HdrHistogram.decode(result.histogram)
    slow = sum(one.count_added_in_this_iter_step for one in histogram.get_recorded_iterator() if one.value_iterated_to > limit_us)
    return slow / histogram.get_total_count()


async def test_wrong_answers_are_counted_and_one_is_shown() -> None:
    wrong = reply({"y": np.array([0, 1, 2, 7], np.float32)})

    async def sometimes_wrong(asked: Asked) -> bytes:
        return wrong if asked.number % 4 == 0 else REPLY

    result = await measured(sometimes_wrong)
    assert result.counts.correct + result.counts.wrong == 100
    assert result.counts.wrong == 25
    assert result.goodput_ratio == 0.75
    assert "output 'y' is [0.,1.,2.,7.], expected [0.,1.,2.,3.]" in result.first_wrong


@pytest.mark.parametrize("body", [b"no tensors", REPLY.partition(b"\r\n\r\n")[2][:-1]])
async def test_malformed_answers_are_wrong(body: bytes) -> None:
    async def malformed(asked: Asked) -> bytes:
        return refusal(200, body)

    result = await measured(malformed)
    assert result.counts.wrong == 100
    assert "malformed" in result.first_wrong


async def test_refusals_are_counted_by_kind() -> None:
    async def refusing(asked: Asked) -> bytes | None:
        match asked.number % 4:
            case 0:
                return refusal(503, b'{"error":"%d","code":"overloaded"}' % asked.number)
            case 1:
                return refusal(500, b"number %d" % asked.number)
            case 2:
                return None
            case _:
                return REPLY

    result = await measured(refusing)
    assert result.counts.failed == 75
    assert result.errors == {
        "HTTP 503: overloaded: #": 25,
        "HTTP 500: number #": 25,
        "the server closed the connection without an answer": 25,
    }


async def test_an_unanswered_request_waits_until_the_end() -> None:
    async def silent(asked: Asked) -> bytes:
        if asked.number % 2:
            await asyncio.Event().wait()
        return REPLY

    result = await measured(silent, msgspec.structs.replace(LOAD, drain_s=2, slo_s=0.4))
    assert result.counts.unanswered == 50
    assert result.counts.correct == 50
    assert result.latency_ms.p90 > 2000
    assert result.latency_ms.max > 2900


async def test_a_closed_loop_has_no_more_requests_than_clients() -> None:
    waiting: set[int] = set()
    most = 0

    async def counting(asked: Asked) -> bytes:
        nonlocal most
        waiting.add(asked.number)
        most = max(most, len(waiting))
        await asyncio.sleep(0.02)
        waiting.discard(asked.number)
        return REPLY

    result = await measured(counting, Load(arrivals="closed", num_clients=3, num_workers=5, warm_up_s=0.1, duration_s=1))
    assert most == 3
    assert result.num_workers == 3
    assert 3 <= result.counts.correct <= 150
    assert result.latency_ms.p50 >= 20


async def test_a_closed_loop_does_not_storm_a_server_that_hangs_up() -> None:
    async def hanging_up(asked: Asked) -> None:
        return None

    result = await measured(hanging_up, Load(arrivals="closed", num_clients=2, warm_up_s=0, duration_s=1))
    assert 2 <= result.counts.failed == result.counts.planned <= 200


async def test_a_batch_dimension_comes_and_goes() -> None:
    batched = reply({name: array[np.newaxis] for name, array in ANSWER.items()})

    async def answering(asked: Asked) -> bytes:
        return batched if b'"shape":[1,4]' in asked.body else refusal(400, b"no batch dimension")

    async with odd_server(answering) as server:
        spec = TargetSpec(protocol="http", url=server.url, model="odd", has_batch_dim=True)
        result = await asyncio.to_thread(run, "odd", spec, POOL, LOAD)
    assert result.counts.correct == 100


async def test_raw_bodies_go_through_a_codec() -> None:
    body = ANSWER["y"].tobytes()

    async def answering(asked: Asked) -> bytes:
        is_right = asked.head.startswith(b"POST /infer ") and np.frombuffer(asked.body, np.float32).shape == (4,)
        return refusal(200 if is_right else 400, body)

    async with odd_server(answering) as server:
        spec = TargetSpec(protocol="raw", url=server.url, model="infer", codec="tests.integration.plain_codec")
        result = await asyncio.to_thread(run, "odd", spec, POOL, LOAD)
    assert (result.counts.correct, result.errors, result.first_wrong) == (100, {}, "")


async def test_a_function_of_the_user_is_a_target() -> None:
    spec = TargetSpec(protocol="tests.integration.plain_codec:open_own", url="", options={"fails": [3]})
    result = await asyncio.to_thread(run, "own", spec, POOL, LOAD)
    assert (result.counts.correct, result.errors) == (80, {"as it was told": 20})


async def test_a_killed_worker_is_an_error() -> None:
    def kill(progress: Progress) -> None:
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it is dead already
                if "loadgen.worker" in child.cmdline():
                    child.kill()

    async with odd_server(right) as server:
        spec = TargetSpec(protocol="http", url=server.url, model="odd")
        load = msgspec.structs.replace(LOAD, duration_s=30, num_workers=2)
        with pytest.raises(WorkerFailedError, match=r"worker \d ended with status -9"):
            await asyncio.to_thread(run, "odd", spec, POOL, load, show=kill)


async def test_a_server_that_is_not_there_is_an_error() -> None:
    async with odd_server(right) as server:
        url = server.url
    with pytest.raises(WorkerFailedError, match=r"no connection to 127\.0\.0\.1:\d+: ConnectionRefusedError"):
        await asyncio.to_thread(run, "odd", TargetSpec(protocol="http", url=url, model="odd"), POOL, LOAD)


async def test_the_server_is_read_at_both_ends_of_the_measured_time() -> None:
    class Watch:
        def __init__(self) -> None:
            self.seen_s: list[float] = []

        def start(self) -> None:
            self.seen_s.append(time.monotonic())

        def stop(self) -> ServerFigures:
            self.seen_s.append(time.monotonic())
            return ServerFigures(batch_sizes={"p": {"1": 3}})

    watch, began_s = Watch(), time.monotonic()
    async with odd_server(right) as server:
        spec = TargetSpec(protocol="http", url=server.url, model="odd")
        load = msgspec.structs.replace(LOAD, warm_up_s=0.5)
        result = await asyncio.to_thread(run, "odd", spec, POOL, load, server=watch)
    assert [seen_s - began_s >= least_s for seen_s, least_s in zip(watch.seen_s, (0.5, 1.5), strict=True)] == [True, True]
    assert result.server.batch_sizes == {"p": {"1": 3}}


async def test_progress_is_printed_meanwhile() -> None:
    seen: list[Progress] = []
    async with odd_server(right) as server:
        spec = TargetSpec(protocol="http", url=server.url, model="odd")
        load = msgspec.structs.replace(LOAD, duration_s=2)
        await asyncio.to_thread(run, "odd", spec, POOL, load, show=seen.append)
    assert len(seen) >= 2
    assert 0 < seen[0].num_done < seen[-1].num_done <= 220
    assert seen[-1].p50_ms > 0
