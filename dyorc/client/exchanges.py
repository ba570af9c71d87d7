"""The two shells: run operations by carrying out their effects over httpx, one blocking, one on an event loop."""

import asyncio
import math
import os
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import aclosing, closing
from typing import Any, TypeVar, cast

import httpx

from dyorc.client.effects import BrokenExchange, Emit, Flow, Parts, Read, Reply, Send, Sleep
from dyorc.client.http import AnswerBody, ServerEndpoint, broken_exchange, headers_of, timeouts
from dyorc.client.transport_pools import AsyncTransport, AsyncTransportPool, Loan, Transport, TransportPool
from dyorc.errors import DeadlineError, TransportError

T = TypeVar("T")

clock_s = time.monotonic
_FAILURES = (httpx.HTTPError, TimeoutError, ssl.SSLError, DeadlineError, TransportError)
"""What an exchange may raise. On an event loop, httpx does not wrap TLS alerts."""
_FORKED = "this stream belongs to the process that began it, before a fork; begin another here"


class HttpExchange:
    """Carries out the effects of one operation, blocking. Close it, also in the middle of a streamed answer.

    httpx limits only each single wait. So the limits shrink with each phase of the exchange, and the clock is checked after each
    part of an answer: a server that sends its answer drop by drop is given up at the deadline; a server that falls
    silent in the middle, after a silence as long as the time that was left when the answer began.

    A transport is used again only after an answer that was read to its end: after any interruption, it may be in any state.
    """

    def __init__(self, pool: TransportPool, connection: ServerEndpoint) -> None:
        self._pool = pool
        self._loan: Loan[Transport] | None = None
        self._connection = connection
        self._chunks: Iterator[bytes] | None = None
        self._pid = os.getpid()

    def perform(self, effect: Send | Read | Sleep) -> Any:
        """Returns the outcome of an effect."""
        match effect:
            case Sleep():
                return time.sleep(effect.duration_s)
            case Send():
                return self._send(effect)
            case Read():
                return self._read(effect)

    def _send(self, effect: Send) -> Reply | BrokenExchange:
        left_s = effect.deadline_s - clock_s()
        if left_s <= 0:
            return BrokenExchange(DeadlineError("the time was up before the request was sent"), was_sent=False, is_final=True)
        limits = timeouts(left_s)
        extensions: dict[str, Any] = {"timeout": limits}
        if left_s < math.inf:
            extensions["trace"] = _shrinking(limits, effect.deadline_s)
        try:
            loan = self._loan = self._pool.lend(limits["pool"])
            response = loan.transport.handle_request(self._connection.request(effect.request, extensions))
            if effect.is_streamed and response.status_code == 200:
                self._chunks = response.iter_bytes()
                return Reply(200, headers_of(response))
            body = AnswerBody(response, self._connection.max_answer_bytes, effect.deadline_s, clock_s)
            for chunk in response.iter_bytes():
                body.feed(chunk)
            self._take_back()
            return body.reply()
        except _FAILURES as error:
            return broken_exchange(error, self._connection.base_url)
        finally:
            if self._chunks is None:
                self.close()

    def _read(self, effect: Read) -> bytes | BrokenExchange:
        assert self._chunks is not None
        if self._pid != os.getpid():
            return broken_exchange(TransportError(_FORKED), self._connection.base_url)
        try:
            chunk = next(self._chunks, b"")
        except _FAILURES as error:
            return broken_exchange(error, self._connection.base_url)
        if not chunk:
            self._take_back()
        if clock_s() >= effect.deadline_s:
            return broken_exchange(DeadlineError("the time was up before the stream ended"), self._connection.base_url)
        return chunk

    def _take_back(self) -> None:
        loan, self._loan = self._loan, None
        if loan is not None:
            self._pool.take_back(loan)

    def close(self) -> None:
        """Closes the connection, unless the answer was read to its end."""
        loan, self._loan = self._loan, None
        if loan is not None:
            self._pool.discard(loan)


class AsyncHttpExchange:
    """Carries out the effects of one operation on an event loop. Close it, also in the middle of a streamed answer."""

    def __init__(self, pool: AsyncTransportPool, connection: ServerEndpoint) -> None:
        self._pool = pool
        self._loan: Loan[AsyncTransport] | None = None
        self._connection = connection
        self._chunks: AsyncGenerator[bytes] | None = None
        self._pid = os.getpid()

    async def perform(self, effect: Send | Read | Sleep) -> Any:
        """Returns the outcome of an effect."""
        match effect:
            case Sleep():
                return await asyncio.sleep(effect.duration_s)
            case Send():
                return await self._send(effect)
            case Read():
                return await self._read(effect)

    async def _send(self, effect: Send) -> Reply | BrokenExchange:
        request = self._connection.request(effect.request, {})
        try:
            async with asyncio.timeout(_left_s(effect.deadline_s)):
                loan = self._loan = await self._pool.lend()
                response = await loan.transport.handle_async_request(request)
                if effect.is_streamed and response.status_code == 200:
                    self._chunks = cast(AsyncGenerator[bytes], response.aiter_bytes())
                    return Reply(200, headers_of(response))
                body = AnswerBody(response, self._connection.max_answer_bytes, effect.deadline_s, clock_s)
                async for chunk in response.aiter_bytes():
                    body.feed(chunk)
            await self._take_back()
            return body.reply()
        except _FAILURES as error:
            return broken_exchange(error, self._connection.base_url)
        finally:
            if self._chunks is None:
                await self.aclose()

    async def _read(self, effect: Read) -> bytes | BrokenExchange:
        assert self._chunks is not None
        if self._pid != os.getpid():
            return broken_exchange(TransportError(_FORKED), self._connection.base_url)
        try:
            async with asyncio.timeout(_left_s(effect.deadline_s)):
                chunk = await anext(self._chunks, b"")
        except _FAILURES as error:
            return broken_exchange(error, self._connection.base_url)
        if not chunk:
            await self._take_back()
        return chunk

    async def _take_back(self) -> None:
        loan, self._loan = self._loan, None
        if loan is not None:
            await self._pool.take_back(loan)

    async def aclose(self) -> None:
        """Closes the connection, unless the answer was read to its end."""
        loan, self._loan = self._loan, None
        try:
            if loan is not None:
                await self._pool.discard(loan)
        finally:
            if self._chunks is not None and self._pid == os.getpid():
                await self._chunks.aclose()


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


def _shrinking(limits: dict[str, float | None], deadline_s: float) -> Callable[[str, object], None]:
    """Returns what httpx calls when a phase begins or ends, before it applies the limits."""

    def shrink(event: str, info: object) -> None:
        limits.update(timeouts(deadline_s - clock_s()))

    return shrink


def _left_s(deadline_s: float) -> float | None:
    return None if deadline_s == math.inf else deadline_s - clock_s()
