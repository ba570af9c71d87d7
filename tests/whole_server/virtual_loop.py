"""An event loop of asyncio on a virtual thread."""

import asyncio
import heapq
import itertools
import sys
import threading
from asyncio import base_events
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from tests.whole_server.network import Network, VirtualListener
from tests.whole_server.world import VirtualThread, World, current_thread


class _Handle(asyncio.Handle):
    """A callback that is due; made without asking its loop for its mode."""

    __slots__ = ()

    def __init__(self, callback: Any, args: Any, loop: Any, context: Context | None) -> None:
        handle: Any = self
        handle._context = copy_context() if context is None else context
        handle._loop, handle._callback, handle._args = loop, callback, args
        handle._cancelled, handle._repr, handle._source_traceback = False, None, None


class _TimerHandle(asyncio.TimerHandle):
    """A callback for later."""

    __slots__ = ()

    def __init__(self, when: float, callback: Any, args: Any, loop: Any, context: Context | None) -> None:
        _Handle.__init__(self, callback, args, loop, context)  # type: ignore[arg-type]
        self._when, self._scheduled = when, True


class VirtualLoop(base_events.BaseEventLoop):
    """Runs one callback at a time, in asyncio's order, and lets other threads run between two.

    Attributes:
        asyncgen_hooks: For `sys.set_asyncgen_hooks` while the loop runs.
    """

    _ready: deque[asyncio.Handle]
    _stopping: bool
    _closed: bool

    def __init__(self, world: World, network: Network) -> None:
        super().__init__()
        self._world = world
        self._network = network
        self._waiting: VirtualThread | None = None
        self._is_signalled = False
        self._listeners: list[VirtualListener] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        loop: Any = self
        self.asyncgen_hooks = (loop._asyncgen_firstiter_hook, loop._asyncgen_finalizer_hook)

    # What `asyncio.BaseEventLoop` does, too, with more steps

    def time(self) -> float:
        """See `asyncio.AbstractEventLoop.time`."""
        return self._world.now_ns / 1e9

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        """See `asyncio.AbstractEventLoop.call_soon`."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        """See `asyncio.AbstractEventLoop.call_soon_threadsafe`."""
        handle = self.call_soon(callback, *args, context=context)
        self._is_signalled = True
        if self._waiting is not None:
            self._world.wake(self._waiting)
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        """See `asyncio.AbstractEventLoop.call_later`."""
        return self.call_at(self._world.now_ns / 1e9 + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        """See `asyncio.AbstractEventLoop.call_at`."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = _TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass  # it is removed when its time has come

    # Running

    def run_forever(self) -> None:
        """See `asyncio.AbstractEventLoop.run_forever`."""
        loop: Any = self
        loop._check_closed()
        loop._check_running()
        thread = current_thread()
        assert thread is not None
        loop._thread_id = threading.get_ident()
        asyncio._set_running_loop(self)
        before = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(*self.asyncgen_hooks)
        thread.loop = self
        try:
            while True:
                self._turn(thread)
                if self._stopping:
                    break
        finally:
            self._stopping = False
            loop._thread_id = None
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*before)
            thread.loop = None

    def _turn(self, thread: VirtualThread) -> None:
        """Runs all callbacks that are ready, after those whose time has come; waits if there are none."""
        ready, timers, world = self._ready, self._timers, self._world
        while timers and timers[0][2]._cancelled:  # type: ignore[attr-defined]
            heapq.heappop(timers)
        if not ready and not self._stopping and not self._is_signalled:
            until_ns = int(timers[0][0] * 1e9) + 1 if timers else None
            if until_ns is None or until_ns > world.now_ns:
                self._waiting = thread
                world.park(until_ns)
                self._waiting = None
        self._is_signalled = False
        end_s = world.now_ns / 1e9
        while timers and timers[0][0] <= end_s:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle: Any = ready.popleft()
            if not handle._cancelled:
                handle._run()
                world.give_way()

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
