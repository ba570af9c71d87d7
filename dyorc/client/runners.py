"""The two shells: run operations by carrying out their effects, one blocking, one on an event loop."""

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from typing import Any, TypeVar

from dyorc.client.effects import Emit, Flow, Parts
from dyorc.client.exchanges import AsyncExchange, Exchange
from dyorc.client.http import Connection
from dyorc.client.pools import AsyncTransportPool, TransportPool

T = TypeVar("T")


class Runner:
    """Runs operations, blocking. Any number of threads may use it at once."""

    def __init__(self, pool: TransportPool, connection: Connection) -> None:
        self._pool = pool
        self._connection = connection

    def close(self) -> None:
        """Closes the connections."""
        self._pool.close()

    def run(self, flow: Flow[T]) -> T:
        """Returns what an operation returns."""
        with closing(Exchange(self._pool, self._connection)) as exchange:
            outcome: Any = None
            while True:
                try:
                    effect = flow.send(outcome)
                except StopIteration as end:
                    return end.value
                outcome = exchange.perform(effect)

    def parts(self, flow: Parts) -> Generator[Any]:
        """Yields what an operation emits."""
        with closing(Exchange(self._pool, self._connection)) as exchange:
            outcome: Any = None
            while True:
                try:
                    effect = flow.send(outcome)
                except StopIteration:
                    return
                outcome = (yield effect.value) if isinstance(effect, Emit) else exchange.perform(effect)


class AsyncRunner:
    """Runs operations on an event loop."""

    def __init__(self, pool: AsyncTransportPool, connection: Connection) -> None:
        self._pool = pool
        self._connection = connection

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._pool.aclose()

    async def run(self, flow: Flow[T]) -> T:
        """Returns what an operation returns."""
        async with aclosing(AsyncExchange(self._pool, self._connection)) as exchange:
            outcome: Any = None
            while True:
                try:
                    effect = flow.send(outcome)
                except StopIteration as end:
                    return end.value
                outcome = await exchange.perform(effect)

    async def parts(self, flow: Parts) -> AsyncGenerator[Any]:
        """Yields what an operation emits."""
        async with aclosing(AsyncExchange(self._pool, self._connection)) as exchange:
            outcome: Any = None
            while True:
                try:
                    effect = flow.send(outcome)
                except StopIteration:
                    return
                outcome = (yield effect.value) if isinstance(effect, Emit) else await exchange.perform(effect)
