"""What changes while a long run goes on: versions, and on Ray the number of replicas, each at its time in a cycle."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import dyorc
from tests.soak.served import write_version

_TIMEOUT_S = 300.0
_SCALED = "double"


class Versions:
    """Which versions were live when, as far as a client can know: a change lies between its beginning and its answer."""

    def __init__(self, number: int) -> None:
        self.newest = self.live = number
        self._spans: list[tuple[int, float, float]] = [(number, 0.0, float("inf"))]

    def begin(self, number: int, now_s: float) -> None:
        """Notes that a version may be live from now on."""
        self._spans.append((number, now_s, float("inf")))

    def finish(self, number: int, now_s: float) -> None:
        """Notes that from now on only this version is live."""
        self._spans = [
            (other, from_s, until_s if other == number else min(until_s, now_s)) for other, from_s, until_s in self._spans
        ]
        self.live = number

    def live_between(self, begin_s: float, end_s: float) -> set[int]:
        """Returns the versions that may have been live between two moments."""
        return {number for number, from_s, until_s in self._spans if from_s <= end_s and until_s >= begin_s}

    def was_live(self, number: int, begin_s: float, end_s: float) -> bool:
        """Returns whether a version may have been live between two moments."""
        return number in self.live_between(begin_s, end_s)


class Changes:
    """Changes a server, the same in each cycle, until it is cancelled.

    Args:
        folder: Where the workflow's file lies.
        scales: Whether the server can have more replicas.

    Attributes:
        counts: Changes that were made, by kind.
    """

    def __init__(self, url: str, folder: Path, versions: Versions, cycle_s: float, *, scales: bool) -> None:
        self._url = url
        self._folder = folder
        self._versions = versions
        self._cycle_s = cycle_s
        self.counts: Counter[str] = Counter()
        self._plan: list[tuple[float, Callable[[dyorc.AsyncClient], Awaitable[None]]]] = [(0.1, self._deploy)]
        if scales:
            self._plan += [(0.3, self._scale_up), (0.7, self._scale_down)]
        self._plan += [(0.45, self._deploy), (0.6, self._roll_back)]
        self._plan.sort(key=lambda entry: entry[0])

    async def run(self, end_s: float) -> None:
        """Changes until then, by the loop's clock.

        Raises:
            DyOrcError: If a change failed.
        """
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        async with dyorc.AsyncClient(self._url, timeout_s=_TIMEOUT_S) as client:
            while True:
                for share, change in self._plan:
                    due_s = begin_s + share * self._cycle_s
                    if due_s >= end_s:
                        return
                    await asyncio.sleep(due_s - loop.time())
                    await change(client)
                    self.counts[change.__name__.strip("_").replace("_", " ")] += 1
                begin_s += self._cycle_s

    async def _deploy(self, client: dyorc.AsyncClient) -> None:
        loop, versions = asyncio.get_running_loop(), self._versions
        versions.newest += 1
        number = versions.newest
        await asyncio.to_thread(write_version, self._folder, number)
        versions.begin(number, loop.time())
        await client.deploy(f"{self._folder}/changing.py:numbered")
        self._previous = versions.live
        versions.finish(number, loop.time())

    async def _roll_back(self, client: dyorc.AsyncClient) -> None:
        loop = asyncio.get_running_loop()
        self._versions.begin(self._previous, loop.time())
        await client.rollback("numbered")
        self._versions.finish(self._previous, loop.time())

    async def _scale_up(self, client: dyorc.AsyncClient) -> None:
        await client.scale(_SCALED, num_warm=2)

    async def _scale_down(self, client: dyorc.AsyncClient) -> None:
        await client.scale(_SCALED, num_warm=1)
