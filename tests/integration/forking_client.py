"""A client that forks after it was used: `python -m tests.integration.forking_client URL KIND`.

Both processes ask at the same time, for values of their own, and print how many answers they got that were not theirs.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

from dyorc.client import AsyncClient, Client

_NUM_REQUESTS = 30
PARENT, CHILD = 1000, 2000


def _main() -> None:
    url, kind = sys.argv[1:]
    if kind == "asyncio":
        asyncio.run(_on_a_loop(AsyncClient(url)))
        return
    with Client(url) as client:
        ask = _KINDS[kind]
        ask(client, 0)
        unfinished = client.stream("flow", x=_array(0)) if kind == "stream" else iter(())
        next(unfinished, None)  # a stream that both processes hold
        if pid := os.fork():
            wrong = _num_wrong(lambda value: ask(client, value), PARENT)
            assert not list(unfinished)
            _, status = os.waitpid(pid, 0)
            print(wrong + os.waitstatus_to_exitcode(status))
            return
        with client:
            os._exit(_num_wrong(lambda value: ask(client, value), CHILD))


def _num_wrong(ask: Callable[[float], float], start: int) -> int:
    return sum(ask(value) != 2 * value for value in range(start, start + _NUM_REQUESTS))


async def _on_a_loop(client: AsyncClient) -> None:
    async def ask(start: int) -> int:
        answers = [await client.infer("flow", x=_array(value)) for value in range(start, start + _NUM_REQUESTS)]
        return sum(float(answer[0]) != 2 * value for value, answer in enumerate(answers, start))

    await ask(0)
    if pid := os.fork():
        wrong = await ask(PARENT)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        print(wrong + os.waitstatus_to_exitcode(status))
        await client.aclose()
    else:
        os._exit(asyncio.run(ask(CHILD)))


def _array(value: float) -> Any:
    return np.array([value], np.float32)


_KINDS: dict[str, Callable[[Client, float], float]] = {
    "infer": lambda client, value: float(client.infer("flow", x=_array(value))[0]),
    "stream": lambda client, value: float(next(islice(client.stream("flow", x=_array(value)), 1))[0]),
    "jobs": lambda client, value: float(client.submit("flow", x=_array(value)).result()[0]),
}


if __name__ == "__main__":
    _main()
