"""The network between virtual processes: connections that delay, stall and break, and byte streams for asyncio over them.

Within a connection nothing changes its order; between connections anything may. A dead process's connections end at their
other side after what it had sent. Between two processes that are parted nothing arrives; what is sent waits.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.whole_server.world import ProcessState, VirtualProcess, World, current_thread

_SHORTEST_S, _LONGEST_S = 20e-6, 400e-6
_SLOW_RATIO = 0.01
_SLOW_S = 0.05
HEARTBEAT_S = 0.9
"""After so long, the ends of a link learn that the other one is stopped or cut off."""


class End:
    """One end of a connection.

    Attributes:
        process: Whose end it is.
        peer: The other end.
        loop: Where it is called.
        deliver: Called with what arrives.
        ended: Called once, with the reason, when no more will arrive.
        is_closed: Whether it neither sends nor receives.
        is_http: Whether it carries bytes, not messages between servers.
    """

    peer: "End"

    def __init__(self, network: "Network", process: VirtualProcess, loop: asyncio.AbstractEventLoop) -> None:
        self.process = process
        self.loop = loop
        self.deliver: Callable[[Any], None] = lambda item: None
        self.ended: Callable[[str], None] = lambda reason: None
        self.is_closed = False
        self.is_http = False
        self.arriving: deque[tuple[Any, str]] = deque()
        self.num_stalled = 0
        self.last_ns = 0
        self._network = network

    def send(self, item: Any) -> None:
        """Sends to the other end, or drops it if this end is closed."""
        if not self.is_closed:
            self._network.transfer(self.peer, (item, ""))

    def close(self, reason: str = "it hung up") -> None:
        """Ends the connection, at the other end after what was sent."""
        if not self.is_closed:
            self.is_closed = True
            self._network.transfer(self.peer, (None, reason))

    def process_ended(self) -> None:
        """Ends the connection with its process."""
        self.close(f"its process {self.process.exit}")

    def break_off(self, reason: str) -> None:
        """Ends this end at once, from outside: what was on its way is lost."""
        self.arriving.clear()
        self.num_stalled = 0
        self.arriving.append((None, reason))
        self.arrive()

    def arrive(self) -> None:
        """Takes the next of what arrives."""
        if not self.arriving or self.is_closed:
            return
        item, reason = self.arriving.popleft()
        try:
            if reason:
                self.is_closed = True
                self.loop.call_soon_threadsafe(self.ended, reason)
            else:
                self.loop.call_soon_threadsafe(self._take, item)
        except RuntimeError:  # the loop is closed
            self.is_closed = True

    def _take(self, item: Any) -> None:
        self.deliver(item)


class Network:
    """All connections of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._listeners: dict[int, VirtualListener] = {}
        self._parted: set[frozenset[str]] = set()
        self._stalled: set[End] = set()
        self.ends: list[End] = []
        self.links: list[End] = []
        self.routers: dict[str, Any] = {}

    # Connections

    def pair(self, here: asyncio.AbstractEventLoop, there: asyncio.AbstractEventLoop, process: VirtualProcess) -> tuple[End, End]:
        """Returns the two ends of a new connection from the running process to another."""
        thread = current_thread()
        assert thread is not None
        near, far = End(self, thread.process, here), End(self, process, there)
        near.peer, far.peer = far, near
        for end in (near, far):
            end.process.on_end.append(end.process_ended)
        self._forget_closed()
        self.ends += [near, far]
        return near, far

    def _forget_closed(self) -> None:
        """Lets go of ends that are closed: a process may live for a virtual day."""
        for end in self.ends:
            if end.is_closed and end.process_ended in end.process.on_end:
                end.process.on_end.remove(end.process_ended)
        self.ends = [end for end in self.ends if not end.is_closed]

    def transfer(self, end: End, event: tuple[Any, str]) -> None:
        """Lets something arrive at an end after a while, after all before."""
        chance = self._world.chance
        delay_s = chance.uniform(_SHORTEST_S, _LONGEST_S)
        if chance.random() < _SLOW_RATIO:
            delay_s += chance.uniform(0, _SLOW_S)
        end.last_ns = max(end.last_ns + 1, self._world.now_ns + int(delay_s * 1e9))
        end.arriving.append(event)
        self._world.call_at(end.last_ns, lambda: self._arrive(end))

    def _arrive(self, end: End) -> None:
        end.num_stalled += 1
        self._let_in(end)

    def _let_in(self, end: End) -> None:
        """Lets arrive at an end what waits there, if something may."""
        if end in self._stalled or self.are_parted(end.process, end.peer.process):
            return
        num_stalled, end.num_stalled = end.num_stalled, 0
        for _ in range(num_stalled):
            end.arrive()

    # Links between servers notice silence

    def watch(self, end: End) -> None:
        """Lets both ends of a connection learn when the other process is stopped or cut off for long."""
        self.links = [known for known in self.links if not known.is_closed] + [end]
        for one in (end, end.peer):
            one.process.on_stop.append(lambda one=one: self._world.call_later(HEARTBEAT_S, lambda: self._look(one)))
        if self.are_parted(end.process, end.peer.process):
            self._world.call_later(HEARTBEAT_S, lambda: self._look(end))

    def _look(self, end: End) -> None:
        is_stopped = end.process.state is ProcessState.STOPPED
        if is_stopped and not end.peer.is_closed:
            end.peer.break_off("its process is stopped")
            end.break_off("the other end hung up")
        elif self.are_parted(end.process, end.peer.process):
            for one in (end, end.peer):
                if not one.is_closed:
                    one.break_off("it is cut off")

    # Faults

    def are_parted(self, one: VirtualProcess, other: VirtualProcess) -> bool:
        """Returns whether nothing passes between two processes."""
        return bool(self._parted) and frozenset((one.name, other.name)) in self._parted

    def part(self, one: VirtualProcess, other: VirtualProcess) -> None:
        """Lets nothing pass between two processes."""
        self._parted.add(frozenset((one.name, other.name)))
        for end in self.links:
            if {end.process, end.peer.process} == {one, other}:
                self._world.call_later(HEARTBEAT_S, lambda end=end: self._look(end))

    def heal(self) -> None:
        """Ends all partitions and stalls: what has waited arrives."""
        self._parted.clear()
        self._stalled.clear()
        for end in self.ends:
            self._let_in(end)

    def stall(self, end: End) -> None:
        """Lets nothing arrive at an end, not even the end of its connection, until `release`; heartbeats do not notice."""
        self._stalled.add(end)

    def release(self, end: End) -> None:
        """Lets arrive again at an end, first what has waited."""
        self._stalled.discard(end)
        self._let_in(end)

    def cut(self, end: End) -> None:
        """Breaks a connection: what is on its way is lost."""
        for one in (end, end.peer):
            if not one.is_closed:
                one.break_off("connection reset")

    # Byte streams

    def listen(
        self, port: int, loop: asyncio.AbstractEventLoop, factory: Callable[[], asyncio.BaseProtocol]
    ) -> "VirtualListener":
        """Listens at a port."""
        thread = current_thread()
        assert thread is not None
        listener = self._listeners[port] = VirtualListener(port, loop, factory, thread.process)
        thread.process.on_end.append(listener.close)
        return listener

    async def connect(
        self, loop: asyncio.AbstractEventLoop, factory: Callable[[], asyncio.Protocol], port: int
    ) -> tuple["VirtualTransport", asyncio.Protocol]:
        """Connects to a port.

        Raises:
            ConnectionRefusedError: If no process listens there.
        """
        await asyncio.sleep(_LONGEST_S)
        listener = self._listeners.get(port)
        if listener is None or not listener.is_open:
            raise ConnectionRefusedError(f"no process listens at port {port}")
        near, far = self.pair(loop, listener.loop, listener.process)
        near.is_http = far.is_http = True
        protocol = factory()
        transport = VirtualTransport(near, protocol, port)
        listener.loop.call_soon_threadsafe(listener.accept, far)
        protocol.connection_made(transport)
        return transport, protocol


class VirtualListener:
    """Stands for an `asyncio.Server`.

    Attributes:
        port: Where it listens.
        is_open: Whether it accepts connections.
    """

    def __init__(
        self, port: int, loop: asyncio.AbstractEventLoop, factory: Callable[[], asyncio.BaseProtocol], process: VirtualProcess
    ) -> None:
        self.port = port
        self.loop = loop
        self.process = process
        self.is_open = True
        self._factory = factory

    def accept(self, end: End) -> None:
        """Makes a connection."""
        if not self.is_open:
            end.close("connection refused")
            return
        protocol = self._factory()
        protocol.connection_made(VirtualTransport(end, protocol, self.port))

    def is_serving(self) -> bool:
        """See `asyncio.Server.is_serving`."""
        return self.is_open

    def close(self) -> None:
        """See `asyncio.Server.close`."""
        self.is_open = False

    async def wait_closed(self) -> None:
        """See `asyncio.Server.wait_closed`."""


class VirtualSocket:
    """A bound or connected socket.

    Attributes:
        is_readable: Returns whether something has come that nobody has read, or the end.
    """

    type = socket.SOCK_STREAM
    family = socket.AF_INET

    def __init__(self, port: int) -> None:
        self._port = port
        self.is_readable: Callable[[], bool] = lambda: False

    def getsockname(self) -> tuple[str, int]:
        """See `socket.socket.getsockname`."""
        return "127.0.0.1", self._port

    def getpeername(self) -> tuple[str, int]:
        """See `socket.socket.getpeername`."""
        return "127.0.0.1", 50_000

    def getsockopt(self, *_: object) -> bytes:
        """The kernel knows nothing of it."""
        raise OSError("a virtual socket has no options")

    def setsockopt(self, *_: object) -> None:
        """See `socket.socket.setsockopt`."""

    def fileno(self) -> int:
        """See `socket.socket.fileno`."""
        return -1

    def close(self) -> None:
        """See `socket.socket.close`."""


class VirtualTransport(asyncio.Transport):
    """A connection of asyncio. It never asks a protocol to write more slowly."""

    def __init__(self, end: End, protocol: Any, port: int) -> None:
        connection = VirtualSocket(port)
        names = {"sockname": connection.getsockname(), "peername": connection.getpeername()}
        super().__init__({**names, "socket": connection})
        self._end = end
        self._protocol = protocol
        self._is_paused = False
        self._is_closing = False
        self._held: deque[bytes | str] = deque()
        connection.is_readable = lambda: self._is_closing or bool(self._held)
        end.deliver, end.ended = self._arrived, self._over

    def _arrived(self, data: bytes | str) -> None:
        if self._is_closing:
            return
        if self._is_paused:
            self._held.append(data)
        elif isinstance(data, bytes):
            self._protocol.data_received(data)
        elif not self._protocol.eof_received():
            self.close()

    def _over(self, reason: str) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._protocol.connection_lost(ConnectionResetError(reason))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `asyncio.WriteTransport.write`."""
        if not self._is_closing and len(data):
            self._end.send(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        """See `asyncio.WriteTransport.writelines`."""
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """See `asyncio.WriteTransport.write_eof`."""
        self._end.send("eof")

    def can_write_eof(self) -> bool:
        """See `asyncio.WriteTransport.can_write_eof`."""
        return True

    def get_write_buffer_size(self) -> int:
        """See `asyncio.WriteTransport.get_write_buffer_size`."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio.WriteTransport.set_write_buffer_limits`."""

    def close(self) -> None:
        """See `asyncio.BaseTransport.close`."""
        if not self._is_closing:
            self._is_closing = True
            self._end.send("eof")
            self._end.close()
            self._end.loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        """See `asyncio.WriteTransport.abort`."""
        self.close()

    def is_closing(self) -> bool:
        """See `asyncio.BaseTransport.is_closing`."""
        return self._is_closing

    def set_protocol(self, protocol: Any) -> None:
        """See `asyncio.BaseTransport.set_protocol`."""
        self._protocol = protocol

    def get_protocol(self) -> Any:
        """See `asyncio.BaseTransport.get_protocol`."""
        return self._protocol

    def is_reading(self) -> bool:
        """See `asyncio.ReadTransport.is_reading`."""
        return not self._is_paused

    def pause_reading(self) -> None:
        """See `asyncio.ReadTransport.pause_reading`."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """See `asyncio.ReadTransport.resume_reading`."""
        self._is_paused = False
        while self._held and not self._is_paused:
            self._arrived(self._held.popleft())
