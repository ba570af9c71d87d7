"""What the focused benchmarks have in common: closed loops that refuse wrong answers, and a gRPC client that costs little."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from benchmarks.focused.gateway import light_grpc
from benchmarks.focused.turns import Terms, Turn, medians
from benchmarks.serving import Address, BenchmarkError
from loadgen.limit import run_echo_server
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.run import run
from loadgen.targets.base import TargetSpec
from tests.integration.stack import running
from tests.workflows import arithmetic

_ECHOED = np.arange(10, dtype=np.float32)
_LOAD = Load(arrivals="closed", num_clients=4, warm_up_s=0.1, duration_s=0.5)


def turn() -> Turn:
    return Turn("echo", 1, Address(host="", http_port=0, grpc_port=None), Terms(warm_up_s=0.1, duration_s=0.5))


def pool(num_values: int = 4, answer: np.ndarray = _ECHOED) -> Pool:
    return Pool(inputs=[{"x": np.zeros(num_values, np.float32)}], answers=[{"y": answer}])


def test_a_closed_loop_reports_its_figures() -> None:
    with run_echo_server("http") as url:
        figures = turn().closed_loop(TargetSpec(protocol="http", url=url, model="echo"), pool(), 2, "http")

    assert figures.keys() == {"http_p50_ms_2", "http_p99_ms_2", "http_rps_2", "http_cpu_2"}
    assert 0 < figures["http_p50_ms_2"] <= figures["http_p99_ms_2"]
    assert figures["http_rps_2"] > 0


def test_a_wrong_answer_ends_a_benchmark() -> None:
    with run_echo_server("http") as url, pytest.raises(BenchmarkError, match="echo, 2 clients: request 0: output 'y'"):
        turn().closed_loop(TargetSpec(protocol="http", url=url, model="echo"), pool(answer=_ECHOED + 1), 2)


def test_medians_are_of_each_figure() -> None:
    assert medians([{"a": 1, "b": 5}, {"a": 9, "b": 5}, {"a": 2, "b": 6}]) == {"a": 2, "b": 5}


@pytest.mark.parametrize("num_values", [4, 4000])
def test_light_grpc_takes_requests_up_to_a_frame(num_values: int) -> None:
    """Requests of 16 kB fill the connection's window again and again, so that they wait for the server to open it."""
    with run_echo_server("grpc") as address:
        spec = TargetSpec(protocol=light_grpc.PROTOCOL, url=address, model="echo")
        result = run("light", spec, pool(num_values), _LOAD)

    assert (result.counts.correct, result.first_wrong, result.errors) == (result.counts.planned, "", {})
    assert result.counts.planned > 20


def test_light_grpc_refuses_requests_beyond_a_frame() -> None:
    with pytest.raises(ValueError, match="expected at most 16384"):
        light_grpc.make_target(TargetSpec(protocol=light_grpc.PROTOCOL, url="127.0.0.1:1"), pool(5000))


async def test_light_grpc_counts_what_the_server_refuses() -> None:
    async with running([arithmetic.quadruple], grpc=True) as stack:
        right = Pool(inputs=[{"x": np.ones(4, np.float32)}], answers=[{"output": np.full(4, 4, np.float32)}])
        results = [
            await asyncio.to_thread(
                run, model, TargetSpec(protocol=light_grpc.PROTOCOL, url=stack.grpc_address, model=model), right, _LOAD
            )
            for model in ("quadruple", "nobody")
        ]

    assert results[0].counts.correct == results[0].counts.planned > 0
    assert results[1].counts.failed == results[1].counts.planned > 0
