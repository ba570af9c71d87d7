"""The clients of the streams benchmark, against DyOrc: every part is read, its age counts from when it was due, faults end it."""

from collections.abc import AsyncIterator

import numpy as np
import pytest

import dyorc
from benchmarks.focused.streams.__main__ import summarize
from benchmarks.focused.streams.client import StreamLoad, read_streams
from benchmarks.focused.streams.streams import Pair, first, second, streams
from benchmarks.serving import BenchmarkError
from tests.integration.stack import running


async def test_parts_are_counted_and_aged() -> None:
    load = StreamLoad(num_clients=4, num_parts=20, pause_us=10_000, warm_up_s=0.3, duration_s=0.8)
    async with running([streams]) as stack:
        seen = await read_streams(str(stack.client.base_url), "streams", load)

    assert 0 < seen.num_parts == len(seen.age_ns) <= 4 * 0.8 / 0.01 * 1.5
    assert 0 < len(seen.first_ns) < seen.num_parts
    assert 0 < np.median(seen.age_ns) < 1e9
    assert seen.cpu_s > 0


async def test_a_stream_that_fails_ends_the_benchmark() -> None:
    load = StreamLoad(num_clients=1, num_parts=20, pause_us=0, warm_up_s=0.0, duration_s=0.5)
    async with running([streams]) as stack:
        with pytest.raises(BenchmarkError, match="status 404, 0 of 20 parts"):
            await read_streams(str(stack.client.base_url), "nobody", load)


async def test_a_wrong_part_ends_the_benchmark() -> None:
    @dyorc.workflow(name="streams")
    async def too_short(plan: Pair) -> AsyncIterator[Pair]:
        async for item in second(first(plan)):
            yield item

    load = StreamLoad(num_clients=2, num_parts=20, pause_us=0, warm_up_s=0.0, duration_s=0.5)
    async with running([too_short]) as stack:
        with pytest.raises(BenchmarkError, match="part 0 is 1000000, expected 2000000"):
            await read_streams(str(stack.client.base_url), "streams", load)


def test_ratios_say_how_many_times_better() -> None:
    names = ("first_p50_ms_1", "first_p50_ms_32", "age_p99_ms_32", "parts_per_s_32", "cpu_32")
    found = summarize({"dyorc_cell": [dict.fromkeys(names, 2.0)], "ray_serve": [dict.fromkeys(names, 8.0)]})

    assert found["dyorc_cell_ratios"] == {
        "first_p50_ms_1": 4.0, "first_p50_ms_32": 4.0, "age_p99_ms_32": 4.0, "parts_per_s_32": 0.25,
    }  # fmt: skip
