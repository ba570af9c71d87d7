"""Answers a batch of requests in one process, as a server that batches whole requests runs a flow.

All flows go as far as they can. Then their calls are grouped by program and run as batches, the fullest program first, and so on
until all requests are answered. This is for servers whose unit is a request, not a program: no new request can join before the
last one of the batch is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.workloads.base import LoadedProgram, Tensors, Workload

_NUM_TURNS = 4
"""Turns of the event loop until all resumed flows have made their next calls: those inside a `gather` start a turn late."""

Waiting = tuple[Tensors, "asyncio.Future[dict[str, np.ndarray[Any, Any]]]"]


def answer_together(
    workload: Workload,
    programs: Mapping[str, LoadedProgram],
    requests: Sequence[Tensors],
    run: Callable[..., Any] = asyncio.run,
) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Returns the answers to a batch of requests. Do not call it inside an event loop.

    Args:
        run: Runs a coroutine. With `asyncio.Runner.run` of a lasting runner, batches share one event loop.
    """
    return run(_answer(workload, programs, requests))


async def _answer(
    workload: Workload, programs: Mapping[str, LoadedProgram], requests: Sequence[Tensors]
) -> list[dict[str, np.ndarray[Any, Any]]]:
    waiting: dict[str, list[Waiting]] = {name: [] for name in programs}

    def call(program: str, /, **inputs: np.ndarray[Any, Any]) -> asyncio.Future[dict[str, np.ndarray[Any, Any]]]:
        future = asyncio.get_running_loop().create_future()
        waiting[program].append((inputs, future))
        return future

    flows = asyncio.gather(*(workload.flow(call, request) for request in requests))
    while not flows.done():
        for _ in range(_NUM_TURNS):
            await asyncio.sleep(0)
        fullest = max(waiting, key=lambda name: len(waiting[name]))
        if waiting[fullest]:
            _run(programs[fullest], waiting[fullest])
    return [answer for answer, _ in await flows]


def _run(program: LoadedProgram, waiting: list[Waiting]) -> None:
    size = program.program.max_batch_size
    batch, waiting[:size] = waiting[:size], []
    for (_, future), outputs in zip(batch, program.run_items([inputs for inputs, _ in batch]), strict=True):
        future.set_result(outputs)
