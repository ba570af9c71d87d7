"""A client that reads answers in parts, and now and then leaves in the middle."""

import asyncio
import random
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field

import dyorc
from dyorc.client import Retries
from dyorc.errors import DyOrcError
from tests.whole_server.served import value_of
from tests.whole_server.streamed import PLAIN, input_of
from tests.whole_server.world import VirtualProcess, World

_TIMEOUT_S = 40.0
_LEAVING_RATIO = 0.2
_FIRST_VALUE = 9000
_CALM_S = 6.0
_RETRIES = Retries(max_attempts=12)
_MAY_FAIL_WITH = {"transport", "not_ready", "overloaded", "capacity", "replica_lost", "tensor_lost", "suspect_input"}
"""Errors while servers come and go: a stream that has begun is not sent again."""


@dataclass
class StreamExchange:
    """A request that is answered in parts.

    Attributes:
        num_wanted: After so many parts the client leaves; 0: never.
        is_calm: Whether it was sent after the faults.
        outcome: ``parts``, ``left``, or an error's code; empty while it is open.
    """

    model: str
    value: int
    num_wanted: int
    is_calm: bool
    parts: list[int] = field(default_factory=list[int])
    outcome: str = ""
    text: str = ""
    num_endings: int = 0

    def fault(self) -> str:
        """Returns what is wrong; empty if nothing is."""
        name, expected = f"stream {self.value} of {self.model}", PLAIN[self.model](self.value)
        if self.num_endings != 1:
            return f"{name} has ended {self.num_endings} times, expected once"
        if self.parts != expected[: len(self.parts)]:
            return f"{name} had the parts {self.parts}, expected {expected}"
        if self.outcome == "parts":
            return "" if self.parts == expected else f"{name} ended after {self.parts}, expected {expected}"
        if self.is_calm and self.outcome != "left":
            return f"{name} failed after the faults: {self.outcome}: {self.text}"
        return "" if self.outcome in {"left", *_MAY_FAIL_WITH} else f"{name} failed with {self.outcome}: {self.text}"


class StreamClient:
    """Sends requests in a process of its own.

    Args:
        until_s: When the faults are over, and it sends its last requests.

    Attributes:
        exchanges: All of them.
    """

    def __init__(self, world: World, seed: int, ports: list[int], until_s: float) -> None:
        self._world = world
        self._chance = random.Random(f"streams {seed}")
        self._ports = ports
        self._until_s = until_s
        self.exchanges: list[StreamExchange] = []

    def start(self) -> VirtualProcess:
        """Starts its process, which ends when all its exchanges have ended."""
        return self._world.start_process("stream-client", lambda: asyncio.run(self._run()))

    def faults(self) -> list[str]:
        """Returns what is wrong, a sentence each."""
        return [fault for exchange in self.exchanges if (fault := exchange.fault())]

    def outcomes(self) -> Counter[str]:
        """Returns how many exchanges ended how."""
        return Counter(f"stream:{exchange.outcome}" for exchange in self.exchanges)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while self._world.elapsed_s < self._until_s:
                await asyncio.sleep(self._chance.expovariate(1.0))
                group.create_task(self._exchange(self._next(self._chance.choice(list(PLAIN)), is_calm=False)))
        await asyncio.sleep(_CALM_S)
        for model in PLAIN:
            await self._exchange(self._next(model, is_calm=True))

    def _next(self, model: str, *, is_calm: bool) -> StreamExchange:
        num_wanted = self._chance.randint(1, 2) if self._chance.random() < _LEAVING_RATIO else 0
        exchange = StreamExchange(model, _FIRST_VALUE + len(self.exchanges), num_wanted, is_calm)
        self.exchanges.append(exchange)
        return exchange

    async def _exchange(self, exchange: StreamExchange) -> None:
        url = f"http://127.0.0.1:{self._chance.choice(self._ports)}"
        self._world.log("asks for a stream", model=exchange.model, x=exchange.value, url=url)
        try:
            async with dyorc.AsyncClient(url, timeout_s=_TIMEOUT_S, retries=_RETRIES) as client:
                await self._read(exchange, client)
        except DyOrcError as error:
            exchange.outcome, exchange.text = error.code, str(error)
        exchange.num_endings += 1
        self._world.log("stream ends", x=exchange.value, outcome=exchange.outcome, parts=exchange.parts, error=exchange.text)

    async def _read(self, exchange: StreamExchange, client: dyorc.AsyncClient) -> None:
        async with aclosing(client.stream(exchange.model, x=input_of(exchange.model, exchange.value))) as parts:
            async for part in parts:
                exchange.parts.append(value_of(part))
                if len(exchange.parts) == exchange.num_wanted:
                    exchange.outcome = "left"
                    return
        exchange.outcome = "parts"
