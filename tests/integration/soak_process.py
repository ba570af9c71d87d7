"""Serves many requests with an orchestrator in a separate process, and prints what has grown. Run by `test_soak`.

``python -m tests.integration.soak_process``. The last line is one JSON object.
"""

import asyncio
import gc
import json

import numpy as np
import psutil

from tests.asking import submission
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
                (y,) = await stack.orchestrator.infer(submission(arithmetic.double_until_large, [x]))
                assert y.max() >= 100
            else:
                total, _ = await stack.orchestrator.infer(submission(arithmetic.sums, [np.ones(size, np.float32)]))
                assert total == size

    await asyncio.gather(*(client(range(at, num, _NUM_CLIENTS)) for at in range(_NUM_CLIENTS)))


def _sizes() -> tuple[float, int, int]:
    gc.collect()
    return psutil.Process().memory_info().rss / 2**20, num_descriptors(), len(gc.get_objects())


async def _soak() -> dict[str, float]:
    async with running([arithmetic.double_until_large, arithmetic.sums]) as stack:
        await _send(stack, _NUM_WARM_UP)
        memory_mb, fds, num_objects = _sizes()
        await _send(stack, _NUM_REQUESTS)
        memory_end_mb, fds_end, num_objects_end = _sizes()
        return {
            "num_requests": _NUM_REQUESTS,
            "memory_growth_mb": memory_end_mb - memory_mb,
            "fd_growth": fds_end - fds,
            "object_growth": num_objects_end - num_objects,
            "num_requests_left": stack.orchestrator.num_requests,
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_soak())))
