"""Requests of all kinds at a moderate rate, each answer checked: plain ones, fan-outs, streams, jobs, and clients that leave."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

import dyorc
from dyorc.client import Retries
from dyorc.errors import DyOrcError
from tests.soak.changes import Versions

_TIMEOUT_S = 120.0
"""Others use the machine, too: what takes long is not wrong."""
_CONNECTIONS_LAST_S = 60.0
"""After so long the client is closed and another one opened, so connections come and go."""
_LARGE = 30_000
_JOB_TTL_S = 30.0
_MAX_PARTS = 12
_LEAVES_AFTER_S = 0.02
_MAX_WRONG = 100


class Load:
    """Asks a server until it is cancelled.

    Args:
        rate: Requests a second.

    Attributes:
        counts: Exchanges that have ended, by kind.
        wrong: What was wrong, a sentence each.
    """

    def __init__(self, url: str, versions: Versions, rate: float, seed: int) -> None:
        self._url = url
        self._versions = versions
        self._rate = rate
        self._chance = random.Random(seed)
        self._open: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._kinds: dict[Callable[[dyorc.AsyncClient], Awaitable[None]], int] = {
            self._loop: 40, self._ask_version: 20, self._fan_out: 10, self._read_stream: 8, self._send_large: 7,
            self._submit: 7, self._leave_stream: 3, self._leave_request: 3, self._ask_badly: 2,
        }  # fmt: skip

    async def run(self, seconds: float) -> None:
        """Asks for so long, and waits for the last answers. Requests come by chance, whether earlier ones are answered or not."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        while (now_s := loop.time()) < end_s:
            async with dyorc.AsyncClient(self._url, timeout_s=_TIMEOUT_S, retries=Retries(max_attempts=1)) as client:
                close_s = min(end_s, now_s + _CONNECTIONS_LAST_S)
                while loop.time() < close_s:
                    self._begin(client)
                    await asyncio.sleep(self._chance.expovariate(self._rate))
                while self._open:
                    await asyncio.wait(self._open)

    def _begin(self, client: dyorc.AsyncClient) -> None:
        (kind,) = self._chance.choices(list(self._kinds), list(self._kinds.values()))
        task = asyncio.ensure_future(self._follow(kind, client))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _follow(self, kind: Callable[[dyorc.AsyncClient], Awaitable[None]], client: dyorc.AsyncClient) -> None:
        name = kind.__name__.strip("_").replace("_", " ")
        try:
            await kind(client)
        except DyOrcError as error:
            self._note(f"{name} failed: {type(error).__name__}: {error}")
        self.counts[name] += 1

    def _note(self, text: str) -> None:
        if len(self.wrong) < _MAX_WRONG:
            self.wrong.append(text)

    def _check(self, name: str, answer: Any, expected: Any) -> None:
        if not np.array_equal(answer, expected):
            self._note(f"{name} answered {answer}, expected {expected}")

    def _number(self) -> float:
        return float(self._chance.randint(1, 99))

    async def _loop(self, client: dyorc.AsyncClient) -> None:
        x = y = self._number()
        while y < 100 or y == x:
            y *= 2
        self._check("looped", await client.infer("looped", x=np.float32(x)), y)

    async def _fan_out(self, client: dyorc.AsyncClient) -> None:
        x = self._number()
        self._check("fanned", await client.infer("fanned", x=np.float32(x)), 8 * x)

    async def _send_large(self, client: dyorc.AsyncClient) -> None:
        x = np.arange(_LARGE, dtype=np.float32) + self._chance.randrange(100)
        self._check("turned", await client.infer("turned", x=x), x[::-1])

    async def _ask_version(self, client: dyorc.AsyncClient) -> None:
        x, loop = self._number(), asyncio.get_running_loop()
        sent_s = loop.time()
        answer = await client.infer("numbered", x=np.float32(x))
        version = int(answer) - int(x)
        if not self._versions.was_live(version, sent_s, loop.time()):
            self._note(f"version {version} answered, live were {self._versions.live_between(sent_s, loop.time())}")

    async def _read_stream(self, client: dyorc.AsyncClient) -> None:
        x, num_parts = self._number(), self._chance.randint(1, _MAX_PARTS)
        parts = [float(part) async for part in client.stream("counted", x=np.float32(x), num_parts=num_parts)]
        self._check("counted", parts, [x * 2**number for number in range(1, num_parts + 1)])

    async def _leave_stream(self, client: dyorc.AsyncClient) -> None:
        x = self._number()
        async with contextlib.aclosing(client.stream("counted", x=np.float32(x), num_parts=10 * _MAX_PARTS)) as parts:
            self._check("the first part", await anext(parts), 2 * x)

    async def _leave_request(self, client: dyorc.AsyncClient) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._chance.uniform(0, _LEAVES_AFTER_S)):
                await self._loop(client)

    async def _submit(self, client: dyorc.AsyncClient) -> None:
        x = self._number()
        job = await client.submit("fanned", x=np.float32(x), ttl_s=_JOB_TTL_S)
        self._check("a job", await job.result(timeout_s=_TIMEOUT_S), 8 * x)

    async def _ask_badly(self, client: dyorc.AsyncClient) -> None:
        try:
            await client.infer("turned", x=np.zeros((2, 2), np.float32))
        except dyorc.errors.ClientError:
            return
        self._note("a matrix was taken as a vector")
