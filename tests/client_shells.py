"""Both shells of the client behind one interface, so that one test covers both."""

import asyncio
import inspect
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from dyorc.client import AsyncClient, AsyncJob, Client

SHELLS = ("blocking", "asyncio")


@contextmanager
def shell(kind: str, url: str, **settings: Any) -> Iterator[Any]:
    """Yields a client that blocks. The asyncio client runs on its own event loop."""
    if kind == "blocking":
        with Client(url, **settings) as client:
            yield client
        return
    with asyncio.Runner() as runner:
        client = AsyncClient(url, **settings)
        yield _Waiting(runner, client)
        runner.run(client.aclose())


class _Waiting:
    """An asynchronous object whose calls block until their result is there."""

    def __init__(self, runner: asyncio.Runner, of: AsyncClient | AsyncJob) -> None:
        self._runner = runner
        self._of = of

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        return self._waiting(found) if inspect.ismethod(found) else found

    def _waiting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            return self._parts(result) if inspect.isasyncgen(result) else self._wrapped(self._runner.run(result))

        return call

    def _parts(self, parts: Any) -> Generator[Any]:
        try:
            while True:
                try:
                    yield self._runner.run(anext(parts))
                except StopAsyncIteration:
                    return
        finally:
            self._runner.run(parts.aclose())

    def _wrapped(self, result: Any) -> Any:
        if isinstance(result, list):
            return [self._wrapped(item) for item in result]
        return _Waiting(self._runner, result) if isinstance(result, AsyncJob) else result
