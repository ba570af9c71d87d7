"""The load generator against DyOrc itself, over HTTP and gRPC, and on the command line."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from dyorc.core.arrays import numpy_dtype
from dyorc.core.tensor import DType
from loadgen.drawing import draw_pool
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.run import run
from loadgen.server_figures import StatisticsWatch, watch_of
from loadgen.tables import tail_text
from loadgen.targets.base import TargetSpec
from loadgen.worker import STOPPED, WorkerPlan
from tests.integration.odd_server import ANSWER, Asked, odd_server, reply
from tests.integration.stack import running
from tests.integration.test_record_routes import Served, ended, served
from tests.workflows import arithmetic
from tests.workflows.mirrors import mirrors

__all__ = ["served"]

INPUTS = [{"x": np.full(4, number, np.float32)} for number in range(8)]
QUADRUPLES = Pool(inputs=INPUTS, answers=[{"output": one["x"] * 4} for one in INPUTS])
LOAD = Load(rate_rps=100, warm_up_s=0.3, duration_s=1, num_workers=2)


def texts(*items: bytes) -> np.ndarray[Any, Any]:
    array = np.empty(len(items), object)
    array[:] = items
    return array


@pytest.mark.parametrize("protocol", ["http", "grpc"])
async def test_a_workflow_answers_correctly(protocol: str) -> None:
    async with running([arithmetic.quadruple], grpc=True) as stack:
        spec = TargetSpec(protocol=protocol, url=str(stack.client.base_url), model="quadruple")
        watch = StatisticsWatch(spec)
        if protocol == "grpc":
            spec = TargetSpec(protocol=protocol, url=stack.grpc_address, model="quadruple")
        result = await asyncio.to_thread(run, protocol, spec, QUADRUPLES, LOAD, server=watch)
    assert (result.counts.correct, result.first_wrong, result.errors) == (result.counts.planned, "", {})
    assert result.counts.planned > 50
    assert result.timeline is not None
    assert sum(result.timeline.num_due) == result.counts.planned
    assert max(result.timeline.max_waiting) > 0
    batches = sum(int(size) * number for size, number in result.server.batch_sizes["double"].items())
    assert batches == pytest.approx(2 * result.counts.planned, rel=0.5)
    assert result.server.device_ms_per_request["double"] > 0
    assert "wasted_s" in result.server.speculation


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("datatype", ["BYTES", "BF16"])
async def test_texts_and_numbers_come_back(protocol: str, datatype: str) -> None:
    async with running([mirrors[datatype]], grpc=True) as stack:
        url = str(stack.client.base_url) if protocol == "http" else stack.grpc_address
        spec = TargetSpec(protocol=protocol, url=url, model=f"mirror_{datatype}")
        result = await asyncio.to_thread(run, protocol, spec, mirrored(datatype), LOAD)
    assert (result.counts.correct, result.first_wrong, result.errors) == (result.counts.planned, "", {})


def mirrored(datatype: str) -> Pool:
    one = texts(b"", b"two words", bytes(range(256))) if datatype == "BYTES" else np.arange(3).astype(numpy_dtype(DType.BF16))
    return Pool(inputs=[{"x": one}], answers=[{"output": one}])


@pytest.mark.parametrize("protocol", ["http", "grpc"])
async def test_requests_are_drawn_from_metadata(protocol: str) -> None:
    async with running([arithmetic.quadruple, arithmetic.sums], grpc=True) as stack:
        url = str(stack.client.base_url) if protocol == "http" else stack.grpc_address

        def drawn(model: str, shapes: dict[str, tuple[int, ...]], seed: int = 0) -> Pool:
            return draw_pool(TargetSpec(protocol=protocol, url=url, model=model), shapes, seed=seed, num_requests=3)

        one, same, other = [await asyncio.to_thread(drawn, "quadruple", {}, seed) for seed in (0, 0, 1)]
        assert [tensors["x"].shape for tensors in one.inputs] == [(4,)] * 3
        assert np.array_equal(one.inputs[0]["x"], same.inputs[0]["x"])
        assert not np.array_equal(one.inputs[0]["x"], other.inputs[0]["x"])
        assert (await asyncio.to_thread(drawn, "sums", {"x": (7,)})).inputs[0]["x"].shape == (7,)
        with pytest.raises(ValueError, match=r"expected e\.g\. --shape x:4"):
            await asyncio.to_thread(drawn, "sums", {})
        with pytest.raises(ValueError, match=r"gives input 'x' the shape \[3\], the model expects \[4\]"):
            await asyncio.to_thread(drawn, "quadruple", {"x": (3,)})
        with pytest.raises(ValueError, match="has no input 'z'"):
            await asyncio.to_thread(drawn, "quadruple", {"z": (3,)})
        with pytest.raises(ValueError, match="metadata"):
            await asyncio.to_thread(drawn, "nobody", {})


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "loadgen", "run", *words]


async def done(*words: str) -> tuple[int, str, str]:
    """Returns exit status, standard output and standard error of the command."""
    process = await asyncio.create_subprocess_exec(*command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, errors = await process.communicate()
    return process.returncode or 0, out.decode(), errors.decode()


async def test_the_command_prints_its_results(tmp_path: Path) -> None:
    QUADRUPLES.save(tmp_path / "pool.npz")
    async with running([arithmetic.quadruple], grpc=True) as stack:
        url = str(stack.client.base_url)
        quick = ("--duration", "1", "--warm-up", "0.2")
        status, out, _ = await done(
            url, "quadruple", "--rate", "100", "--pool", str(tmp_path / "pool.npz"), "--out", str(tmp_path / "r.json"), *quick
        )
        assert status == 0
        assert "quadruple" in out
        assert json.loads((tmp_path / "r.json").read_bytes())["counts"]["wrong"] == 0
        status, out, _ = await done(stack.grpc_address, "quadruple", "--protocol", "grpc", "--clients", "2", "--json", *quick)
        assert status == 0
        assert json.loads(out)["counts"]["correct"] > 0


async def test_the_slowest_of_the_measured_time_are_explained(served: Served) -> None:
    spec = TargetSpec(protocol="http", url=served.url, model="quadruple", headers={"X-API-Key": served.keys["operator"]})
    served.twin.is_silent = True  # it has no statistics
    watch = StatisticsWatch(spec)
    await asyncio.to_thread(watch.start)
    for number in range(10, 30):
        served.stores[0].take(ended(number, "team", workflow="quadruple"))
    served.stores[0].take(ended(9, "team", duration_ms=100, workflow="quadruple"))
    served.stores[0].take(ended(8, "team", duration_ms=900))
    figures = await asyncio.to_thread(watch.stop)
    tail = figures.tail
    assert tail is not None
    assert (tail.num_requests, tail.num_slowest, tail.from_ms) == (21, 1, 100)
    text = tail_text(figures)
    assert text.startswith("the slowest 1 of 21 recorded, from 100 ms: engine ")


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (404, "the server explains no requests (/tail answered 404)"),
        (403, "this key may not ask for it (/tail answered 403)"),
        (200, "the server explains no requests (its answer to /tail is another server's)"),
        (None, "the server could not be asked (/tail: ConnectError)"),
    ],
)
async def test_a_server_that_explains_nothing_is_named(status: int | None, why: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status} -\r\ncontent-length: 2\r\nconnection: close\r\n\r\n[]".encode())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        if status is None:
            server.close()
        watch = watch_of(TargetSpec(protocol="http", url=f"http://127.0.0.1:{port}", model="quadruple"))
        await asyncio.to_thread(watch.start)
        figures = await asyncio.to_thread(watch.stop)
    assert tail_text(figures) == f"no tail: {why}"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("http://127.0.0.1:1", "m", "--rate", "1"), "returned no metadata"),
        (("http://127.0.0.1:1", "m"), "no load is given, expected --rate"),
        (("127.0.0.1:1", "m", "--rate", "1"), "the URL is '127.0.0.1:1', expected http://"),
        (("http://127.0.0.1:1", "m", "--rate", "1", "--pool", "/nowhere.npz"), "/nowhere.npz"),
        (("http://127.0.0.1:1", "m", "--rate", "1", "--protocol", "raw"), "--protocol raw needs --codec"),
        (("http://127.0.0.1:1", "m", "--rate", "1", "--header", "x"), "expected 'Name: value'"),
    ],
)
async def test_an_error_is_one_line(words: tuple[str, ...], text: str) -> None:
    status, _, errors = await done(*words)

    assert status == 2
    assert errors.startswith("error: ")
    assert text in errors
    assert "Traceback" not in errors


async def test_ctrl_c_ends_it_with_its_workers(tmp_path: Path) -> None:
    """The module's check for what is left behind sees to the workers."""
    Pool(inputs=INPUTS, answers=[ANSWER] * 8).save(tmp_path / "pool.npz")
    asked = asyncio.Event()

    async def answering(request: Asked) -> bytes:
        asked.set()
        return reply()

    async with odd_server(answering) as server:
        words = command(
            server.url, "odd", "--rate", "50", "--duration", "60", "--pool", str(tmp_path / "pool.npz"), "--workers", "2"
        )
        process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        await asyncio.wait_for(asked.wait(), 60)
        process.send_signal(signal.SIGINT)
        _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 130
    assert b"Traceback" not in errors


async def test_a_worker_ends_with_its_parent(tmp_path: Path) -> None:
    QUADRUPLES.save(tmp_path / "pool.npz")
    asked = asyncio.Event()

    async def answering(request: Asked) -> bytes:
        asked.set()
        return reply()

    async with odd_server(answering) as server:
        spec = TargetSpec(protocol="http", url=server.url, model="odd")
        plan = WorkerPlan(spec=spec, load=Load(rate_rps=1000, duration_s=60), pool=str(tmp_path / "pool.npz"), number=0)
        (tmp_path / "plan.json").write_bytes(msgspec.json.encode(plan))
        words = [sys.executable, "-m", "loadgen.worker", str(tmp_path / "plan.json"), str(tmp_path / "result.npz")]
        process = await asyncio.create_subprocess_exec(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        process.stdin.write(b"1\n")  # the start is over: everything that is due is sent at once
        await asyncio.wait_for(asked.wait(), 60)
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 30) == STOPPED
    assert not (tmp_path / "result.npz").exists()
