"""Many requests in a row: the orchestrator does not grow. `tests/bench/soak.py` is the long version, against a real server."""

import asyncio
import gc

import numpy as np
import psutil

from tests.integration.stack import Stack, num_descriptors, running
from tests.workflows import arithmetic

_NUM_WARM_UP = 2000
_NUM_REQUESTS = 5000
_NUM_CLIENTS = 8


async def _send(stack: Stack, num: int) -> None:
    async def client(numbers: range) -> None:
        for number in numbers:
            size = (4, 30_000)[number % 50 == 0]  # now and then a tensor that is kept aside
            if size == 4:
                x = np.full(4, number % 7 + 1, np.float32)
                (y,) = await stack.orchestrator.infer(arithmetic.double_until_large, [x])
                assert y.max() >= 100
            else:
                total, _ = await stack.orchestrator.infer(arithmetic.sums, [np.ones(size, np.float32)])
                assert total == size

    await asyncio.gather(*(client(range(at, num, _NUM_CLIENTS)) for at in range(_NUM_CLIENTS)))


async def test_memory_and_descriptors_stay_flat() -> None:
    async with running([arithmetic.double_until_large, arithmetic.sums]) as stack:
        await _send(stack, _NUM_WARM_UP)
        gc.collect()
        process = psutil.Process()
        rss_mb, fds, num_objects = process.memory_info().rss / 2**20, num_descriptors(), len(gc.get_objects())
        await _send(stack, _NUM_REQUESTS)
        gc.collect()
        rss_end_mb, fds_end, num_objects_end = process.memory_info().rss / 2**20, num_descriptors(), len(gc.get_objects())
        print(
            f"\n{_NUM_REQUESTS} requests: memory {rss_mb:.1f} -> {rss_end_mb:.1f} MiB, descriptors {fds} -> {fds_end}, "
            f"objects {num_objects} -> {num_objects_end}"
        )
        assert rss_end_mb - rss_mb < 8
        assert num_objects_end - num_objects < _NUM_REQUESTS / 10
        assert fds_end == fds
        assert stack.orchestrator.num_requests == 0
