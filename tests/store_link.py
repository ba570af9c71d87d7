"""A connection to a store that can be cut, as a network is: what was sent meanwhile arrives afterwards.

    with StoreLink(redis.socket) as link:
        ...                             # a server with the store `link.url`
        with link.cut():
            ...                         # nothing arrives, nothing is refused

`tests.link_relay` loses frames between two network namespaces, for which it needs root; TCP then sends them again. This needs
nothing, and is between one process and its store alone.
"""

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Self

_CHUNK_BYTES = 1 << 16


class StoreLink:
    """Hands bytes on between a Unix socket of its own and the store's while entered.

    Args:
        store: The store's Unix socket.

    Attributes:
        url: The store, through this link.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="store-link")
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._is_whole: asyncio.Event
        self._over: asyncio.Event

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="dyorc-l-")
        self._path = Path(self._folder.name) / "socket"
        self.url = f"unix://{self._path}"
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        self._folder.cleanup()

    @contextlib.contextmanager
    def cut(self) -> Generator[None]:
        """Cuts the link for the block."""
        self._loop.call_soon_threadsafe(self._is_whole.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._is_whole.set)

    async def _main(self) -> None:
        self._loop, self._is_whole, self._over = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._is_whole.set()
        tasks: set[asyncio.Task[None]] = set()

        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._carry(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_unix_server(take, self._path)
        self._started.set()
        await self._over.wait()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carries one connection's bytes both ways until both ends have closed it, or one is gone."""
        with contextlib.suppress(OSError), contextlib.closing(writer):
            await self._is_whole.wait()
            from_store, to_store = await asyncio.open_unix_connection(self._store)
            with contextlib.closing(to_store):
                await asyncio.gather(self._pump(reader, to_store), self._pump(from_store, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            await self._is_whole.wait()
            writer.write(chunk)
            await writer.drain()
        writer.close()
