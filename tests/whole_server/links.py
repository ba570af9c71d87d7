"""The carrier of links between gateways, orchestrators and replicas, over the virtual network."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Self

from dyorc.config import LinkConfig
from dyorc.errors import TransportError
from dyorc.transport.column_codec import Frame
from dyorc.transport.link import OrchestratorEnd, ReplicaEnd
from dyorc.transport.peer_process import CONNECTION_LOST, LinkCallbacks, ending_of
from dyorc.transport.zmq_security import ClusterKeys
from tests.whole_server.dealer_link import VirtualDealerLink
from tests.whole_server.network import End, Network
from tests.whole_server.world import ProcessState, VirtualProcess, current_thread


class VirtualRouterLink:
    """An orchestrator's end; see `OrchestratorEnd`."""

    def __init__(self, address: str, network: Network, callbacks: LinkCallbacks) -> None:
        self.address = address
        self.num_bytes_sent = self.num_bytes_received = 0
        self.is_open = False
        self.process: VirtualProcess
        self.loop: asyncio.AbstractEventLoop
        self._network = network
        self._callbacks = callbacks
        self._peers: dict[bytes, End] = {}
        self._keys = itertools.count(1)
        self._is_drained_due = False

    async def __aenter__(self) -> Self:
        thread = current_thread()
        assert thread is not None
        self.process, self.loop, self.is_open = thread.process, asyncio.get_running_loop(), True
        self._network.routers[self.address] = self
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.is_open = False
        for end in self._peers.values():
            end.close()
        self._peers.clear()

    def accept(self, end: End) -> None:
        """Takes a connection."""
        key = next(self._keys).to_bytes(8, "big")
        self._peers[key] = end
        spoken: list[bool] = []
        end.deliver = lambda frames: self._deliver(key, frames, spoken)
        end.ended = lambda reason: self._leave(key, reason, spoken)

    def end_of(self, peer: bytes) -> End:
        """Returns this side's end of the connection with a peer."""
        return self._peers[peer]

    def send(self, peer: bytes, frames: Sequence[Frame]) -> bool:
        """See `OrchestratorEnd.send`."""
        end = self._peers.get(peer)
        if end is None:
            return False
        copies = [bytes(frame) for frame in frames]
        self.num_bytes_sent += sum(map(len, copies))
        end.send(copies)
        return True

    def _deliver(self, key: bytes, frames: list[bytes], spoken: list[bool]) -> None:
        if not self.is_open or key not in self._peers:
            return
        spoken.append(True)
        self.num_bytes_received += sum(map(len, frames))
        if not self._is_drained_due:
            self._is_drained_due = True
            self.loop.call_soon(self._report_drained)
        self._callbacks.received(key, [bytearray(frame) for frame in frames])

    def _report_drained(self) -> None:
        self._is_drained_due = False
        if self.is_open:
            self._callbacks.drained()

    def _leave(self, key: bytes, reason: str, spoken: list[bool]) -> None:
        end = self._peers.pop(key, None)
        if end is not None and self.is_open and spoken:
            process = end.peer.process
            ending = ending_of(process.wait_status) if process.state is ProcessState.DEAD else CONNECTION_LOST
            self._callbacks.lost(key, ending)


class VirtualCallerLink:
    """A gateway's end; see `CallerEnd`."""

    def __init__(
        self, address: str, network: Network, received: Callable[[Sequence[Frame]], None], lost: Callable[[str], None]
    ) -> None:
        router: VirtualRouterLink | None = network.routers.get(address)
        if router is None or not router.is_open or router.process.state is ProcessState.DEAD:
            raise TransportError(f"no process answers at {address}: connection refused")
        self._is_open = True
        self._received = received
        self._lost = lost
        self._end, far = network.pair(asyncio.get_running_loop(), router.loop, router.process)
        router.accept(far)
        self._end.deliver, self._end.ended = self._take, self._over
        network.watch(self._end)

    def send(self, frames: Sequence[Frame]) -> None:
        """See `CallerEnd.send`."""
        if self._is_open:
            self._end.send([bytes(frame) for frame in frames])

    def close(self) -> None:
        """See `CallerEnd.close`."""
        self._is_open = False
        self._end.close()

    def _take(self, frames: list[bytes]) -> None:
        if self._is_open:
            self._received([bytearray(frame) for frame in frames])

    def _over(self, reason: str) -> None:
        if self._is_open:
            self._is_open = False
            self._lost(reason)


class VirtualCarrier:
    """Makes the ends of links; see `dyorc.transport.link.Carrier`."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def listen(self, address: str, config: LinkConfig, callbacks: LinkCallbacks, keys: ClusterKeys | None) -> OrchestratorEnd:
        """See `dyorc.transport.link.listen`."""
        return VirtualRouterLink(address, self._network, callbacks)

    def dial(self, address: str, config: LinkConfig, receive_timeout_s: float, keys: ClusterKeys | None) -> ReplicaEnd:
        """See `dyorc.transport.link.dial`."""
        link: Any = VirtualDealerLink(address, self._network, receive_timeout_s)
        return link

    def call(
        self, address: str, config: LinkConfig, received: Callable[[Sequence[Frame]], None],
        lost: Callable[[str], None], keys: ClusterKeys | None,
    ) -> Any:  # fmt: skip
        """See `dyorc.transport.link.call`."""
        return VirtualCallerLink(address, self._network, received, lost)
