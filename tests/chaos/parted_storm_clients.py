"""The load of the storm over gateways and orchestrators: clients that do not try again, so that they notice every failure."""

import asyncio
import itertools
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

import dyorc
from dyorc.client import Retries
from dyorc.errors import EffectLostError

_ONCE = Retries(max_attempts=1)
_REST_S = 0.01
"""Between two requests of a client, or the machine would have no time left for processes that start."""
_REST_AFTER_FAILURE_S = 0.1
_NUM_PARTS = 8


@dataclass
class Tally:
    """The outcomes of the requests at one gateway.

    Attributes:
        failed: Why requests failed, except for requests lost with their gateway.
        noted: The numbers that were answered by the workflow with an effect.
        answered_by: The processes that answered, with the time of their first answer.
        longest_s: The longest time that an answer took.
        is_struck: Whether this gateway is dead, or not ready again.
        num_strikes: How often it was struck.
    """

    num_asked: int = 0
    num_answered: int = 0
    effects_lost: int = 0
    lost_with_gateway: int = 0
    failed: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    noted: list[int] = field(default_factory=list[int])
    answered_by: dict[int, float] = field(default_factory=dict[int, float])
    longest_s: float = 0.0
    is_struck: bool = False
    num_strikes: int = 0


class Load:
    """Runs clients that ask while entered, as many at each gateway.

    Args:
        folder: Where the program with an effect notes what it was given.

    Attributes:
        tallies: One for each gateway.
    """

    def __init__(self, urls: list[str], num_clients: int, folder: Path) -> None:
        self._urls = urls
        self._num_clients = num_clients
        self._folder = folder
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []
        self.tallies = [Tally() for _ in urls]

    async def __aenter__(self) -> Self:
        for number, at in zip(range(self._num_clients), itertools.cycle(range(len(self._urls))), strict=False):
            self._tasks.append(asyncio.create_task(self._run(number, self._urls[at], self.tallies[at])))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over = True
        await asyncio.gather(*self._tasks)

    async def _run(self, number: int, url: str, tally: Tally) -> None:
        async with dyorc.AsyncClient(url, retries=_ONCE) as client:
            for step in itertools.count():
                if self._is_over:
                    return
                await self._ask(client, step, number * 1_000_000 + step, tally)
                await asyncio.sleep(_REST_S)

    async def _ask(self, client: dyorc.AsyncClient, step: int, value: int, tally: Tally) -> None:
        tally.num_asked += 1
        was_struck, num_strikes, asked_s = tally.is_struck, tally.num_strikes, time.monotonic()
        try:
            fault = await self._fault(client, step, value, tally)
        except EffectLostError:
            tally.effects_lost += 1
        except Exception as error:
            if was_struck or tally.num_strikes > num_strikes:
                tally.lost_with_gateway += 1
            else:
                tally.failed.append(f"{type(error).__name__}: {error}")
            await asyncio.sleep(_REST_AFTER_FAILURE_S)
        else:
            tally.num_answered += 1
            tally.longest_s = max(tally.longest_s, time.monotonic() - asked_s)
            if fault:
                tally.wrong.append(fault)

    async def _fault(self, client: dyorc.AsyncClient, step: int, value: int, tally: Tally) -> str:
        """Asks, and returns what is wrong with the answer; empty if nothing is."""
        match step % 4:
            case 0:
                found = await client.infer("squared", x=np.asarray(value), rest_s=0.01)
                tally.answered_by.setdefault(int(found["output_1"]), time.monotonic())
                is_right = int(found["output_0"]) == value * value + 1
            case 1:
                found = await client.infer("doubled", x=np.full(20_000, step, np.float32))
                is_right = found.shape == (20_000,) and bool((found == step * 4).all())
            case 2:
                parts = client.stream("counted", x=np.asarray(value), num_parts=_NUM_PARTS)
                found = [int(part) async for part in parts]
                is_right = found == [(value + at) ** 2 + 1 for at in range(_NUM_PARTS)]
            case _:
                found = await client.infer("noted", x=np.asarray(value), folder=str(self._folder))
                tally.noted.append(value)
                is_right = int(found) == value + 1
        return "" if is_right else f"kind {step % 4}, for {value}: {found}"

    def effects(self) -> tuple[int, int]:
        """Returns how many numbers were noted more than once, and how many were answered without having been noted."""
        runs = Counter(int(line) for line in (self._folder / "runs").read_text().split())
        num_unnoted = sum(not runs[value] for tally in self.tallies for value in tally.noted)
        return sum(number > 1 for number in runs.values()), num_unnoted
