"""The two shells: run operations by carrying out their effects, one blocking, one on an event loop."""

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from typing import Any, TypeVar

from dyorc.client.effects import Emit, Flow, Parts
from dyorc.client.exchanges import AsyncHttpExchange, HttpExchange
from dyorc.client.http import ServerEndpoint
from dyorc.client.transport_pools import AsyncTransportPool, TransportPool

T = TypeVar("T")


class FlowRunner:
    """Runs operations, blocking. Any number of threads may use it at once."""

    def __init__(self, pool: TransportPool, connection: ServerEndpoint) -> None:
        self._pool = pool
        self._connection = connection

    def close(self) -> None:
        """Closes the connections."""
        self._pool.close()

    def run(self, flow: Flow[T]) -> T:
        """Returns what an operation returns."""
        with closing(HttpExchange(self._pool, self._connection)) as exchange:
            outcome: Any = None
            while True:
                try:
                    effect = flow.send(outcome)
                except StopIteration as end:
                    return end.value
                outcome = exchange.perform(effect)

    def parts(self, flow: Parts) -> Generator[Any]:
        """Yields what an operation emits."""
        with closing(HttpExchange(self._pool, self._connection)) as exchange:
            outcome: Any = None
            while True:
                try:
                    effect = flow.send(outcome)
                except StopIteration:
                    return
                outcome = (yield effect.value) if isinstance(effect, Emit) else exchange.perform(effect)


class AsyncFlowRunner:
    """Runs operations on an event loop."""

    def __init__(self, pool: AsyncTransportPool, connection: ServerEndpoint) -> None:
        self._pool = pool
        self._connection = connection

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._pool.aclose()

    async def run(self, flow: Flow[T]) -> T:
        """Returns what an operation returns."""
        async with aclosing(AsyncHttpExchange(self._pool, self._connection)) as exchange:
            outcome: Any = None
            while True:
                try:
                    effect = flow.send(outcome)
                except StopIteration as end:
                    return end.value
                outcome = await exchange.perform(effect)

    async def parts(self, flow: Parts) -> AsyncGenerator[Any]:
        """Yields what an operation emits."""
        async with aclosing(AsyncHttpExchange(self._pool, self._connection)) as exchange:
            outcome: Any = None
            while True:
                try:
                    effect = flow.send(outcome)
                except StopIteration:
                    return
                outcome = (yield effect.value) if isinstance(effect, Emit) else await exchange.perform(effect)
