"""Clients at two gateways, while the orchestrator that leads is killed again and again.

    python -m tests.chaos.parted_storm [KILLS] [CLIENTS]

The last line is one JSON object: kills, requests, failed, wrong, run_twice, effects_lost, and back_after_s, from a kill until the
next answer (median and longest).
"""

import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dyorc.errors import EffectLostError
from dyorc.remote.backend import RemoteBackend
from tests.asking import submission
from tests.chaos.parted import Group, ask, gateway
from tests.deadlines import wait_until_async
from tests.integration.stack import within
from tests.workflows import parted


@dataclass
class Tally:
    """What became of requests."""

    num_asked: int = 0
    num_answered: int = 0
    effects_lost: int = 0
    failed: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    noted: list[int] = field(default_factory=list[int])


async def client(number: int, backend: RemoteBackend, group: Group, tally: Tally, is_over: asyncio.Event) -> None:
    """Asks for one thing after the other."""
    for step in itertools.count():
        if is_over.is_set():
            return
        value = number * 100_000 + step
        tally.num_asked += 1
        try:
            match step % 4:
                case 0:
                    (y, _) = await ask(backend, parted.squared, [value], 0.01)
                    is_right = int(y) == value * value + 1
                case 1:
                    x = np.full(20_000, value, np.float32)
                    (z,) = await ask(backend, parted.doubled, [x])
                    is_right = bool((z == x * 4).all())
                case 2:
                    question = submission(parted.counted, [np.asarray(value)], (8,), within(60))
                    stream = backend.stream(question, take=lambda arrays: int(arrays[0]))
                    found = [part async for parts in stream for part in parts]
                    is_right = found == [(value + at) ** 2 + 1 for at in range(8)]
                case _:
                    (y,) = await ask(backend, parted.noted, [value], str(group.folder))
                    tally.noted.append(value)
                    is_right = int(y) == value + 1
        except EffectLostError:
            tally.effects_lost += 1
        except Exception as error:
            tally.failed.append(f"{type(error).__name__}: {error}")
        else:
            tally.num_answered += 1
            if not is_right:
                tally.wrong.append(f"{step % 4}: {value}")


async def storm(group: Group, num_kills: int, num_clients: int) -> dict[str, Any]:
    """Kills, and returns what became of the requests."""
    group.start()
    tally, is_over, back_after_s = Tally(), asyncio.Event(), list[float]()
    async with gateway(group.folder, "gateway-1") as first, gateway(group.folder, "gateway-2") as second:
        for one in (first, second):
            await wait_until_async(lambda one=one: bool(one.status.programs) and one.status.is_ready, "programs are loaded")
        clients = [
            asyncio.create_task(client(number, backend, group, tally, is_over))
            for number, backend in zip(range(num_clients), itertools.cycle((first, second)), strict=False)
        ]
        for _ in range(num_kills):
            await asyncio.sleep(0.5)
            killed_s, fence, leader = time.monotonic(), first.fence, first.leader
            assert leader is not None
            group.kill(leader.pid)
            await wait_until_async(lambda fence=fence: min(first.fence, second.fence) > fence, "both follow the next")
            num_answered = tally.num_answered
            await wait_until_async(lambda num=num_answered: tally.num_answered > num, "requests are answered again")
            back_after_s.append(time.monotonic() - killed_s)
        is_over.set()
        await asyncio.gather(*clients)
    runs = Counter(int(line) for line in (group.folder / "runs").read_text().split())
    unnoted = [value for value in tally.noted if not runs[value]]
    return {
        "kills": num_kills,
        "requests": tally.num_asked,
        "failed": len(tally.failed),
        "wrong": len(tally.wrong) + len(unnoted),
        "run_twice": sum(number > 1 for number in runs.values()),
        "effects_lost": tally.effects_lost,
        "back_after_s": {"median": round(statistics.median(back_after_s), 3), "max": round(max(back_after_s), 3)},
        "errors": sorted(set(tally.failed))[:5] + tally.wrong[:5],
    }


def main(num_kills: int = 50, num_clients: int = 32) -> None:
    """Runs it, and prints the result."""
    with tempfile.TemporaryDirectory(prefix="dyorc-") as folder:
        group = Group(Path(folder))
        try:
            group.start()
            print(json.dumps(asyncio.run(storm(group, num_kills, num_clients))))
        finally:
            group.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
