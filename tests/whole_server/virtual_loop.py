"""An event loop of asyncio on a virtual thread."""

import asyncio
import heapq
import threading
from asyncio import base_events
from collections.abc import Callable
from typing import Any

from tests.whole_server.network import Network, VirtualListener
from tests.whole_server.world import VirtualThread, World, current_thread


class VirtualLoop(base_events.BaseEventLoop):
    """Runs one callback at a time, in asyncio's order, and lets other threads run between two.

    Attributes:
        asyncgen_hooks: For `sys.set_asyncgen_hooks` while the loop runs.
    """

    def __init__(self, world: World, network: Network) -> None:
        super().__init__()
        self._world = world
        self._network = network
        self._waiting: VirtualThread | None = None
        self._is_signalled = False
        self._listeners: list[VirtualListener] = []
        loop: Any = self
        self.asyncgen_hooks = (loop._asyncgen_firstiter_hook, loop._asyncgen_finalizer_hook)

    def time(self) -> float:
        """See `asyncio.AbstractEventLoop.time`."""
        return self._world.now_ns / 1e9

    def run_forever(self) -> None:
        """See `asyncio.AbstractEventLoop.run_forever`."""
        loop: Any = self
        loop._check_closed()
        loop._check_running()
        thread = current_thread()
        assert thread is not None
        loop._thread_id = threading.get_ident()
        asyncio._set_running_loop(self)
        thread.loop = self
        try:
            while True:
                self._turn()
                if loop._stopping:
                    break
        finally:
            loop._stopping = False
            loop._thread_id = None
            asyncio._set_running_loop(None)
            thread.loop = None

    def _turn(self) -> None:
        """Runs all callbacks that are ready, after those whose time has come; waits if there are none."""
        loop: Any = self
        ready, scheduled = loop._ready, loop._scheduled
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not ready and not loop._stopping and not self._is_signalled:
            until_ns = int(scheduled[0]._when * 1e9) + 1 if scheduled else None
            if until_ns is None or until_ns > self._world.now_ns:
                self._waiting = current_thread()
                self._world.park(until_ns)
                self._waiting = None
        self._is_signalled = False
        end_s = self.time()
        while scheduled and scheduled[0]._when <= end_s:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            ready.append(handle)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()
                self._world.give_way()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass  # it is removed when its time has come

    def _write_to_self(self) -> None:
        self._is_signalled = True
        if self._waiting is not None:
            self._world.wake(self._waiting)

    def _process_events(self, event_list: Any) -> None:
        pass

    # The network

    async def create_server(self, protocol_factory: Callable[[], asyncio.BaseProtocol], *_: Any, **options: Any) -> Any:
        """Listens at a `VirtualSocket`."""
        listener = self._network.listen(options["sock"].getsockname()[1], self, protocol_factory)
        self._listeners.append(listener)
        return listener

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: str | None = None, port: int | None = None, **_: Any
    ) -> Any:
        """Connects to a virtual port."""
        return await self._network.connect(self, protocol_factory, port or 0)

    def remove_reader(self, fd: Any) -> bool:
        """Accepts no more connections at a `VirtualSocket`."""
        for listener in self._listeners:
            if fd.getsockname()[1] == listener.port:
                listener.close()
        return True

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:
        """Does nothing: only kills and stops are simulated."""


class VirtualPolicy(asyncio.DefaultEventLoopPolicy):
    """Makes virtual loops inside a world."""

    def __init__(self, world: World, network: Network) -> None:
        super().__init__()
        self._world = world
        self._network = network

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """See `asyncio.AbstractEventLoopPolicy.new_event_loop`."""
        return VirtualLoop(self._world, self._network)
