"""A replica's end of its link over the virtual network, and what ends its wait."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self

from dyorc.transport.column_codec import Frame
from tests.whole_server.network import End, Network
from tests.whole_server.world import ProcessState, VirtualThread, current_thread

_REDIAL_S, _MAX_REDIAL_S = 0.05, 1.0


class VirtualWakeUp:
    """See `dyorc.transport.wake_up.WakeUp`."""

    def __init__(self) -> None:
        self.is_set = False
        self.waiting: VirtualThread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def set(self) -> None:
        """See `WakeUp.set`."""
        self.is_set = True
        if self.waiting is not None:
            self.waiting.world.wake(self.waiting)

    def clear(self) -> bool:
        """See `WakeUp.clear`."""
        was_set, self.is_set = self.is_set, False
        return was_set


class _AtOnce:
    """In place of the event loop of an end that has none: what arrives is put where its thread looks."""

    def call_soon_threadsafe(self, call: Callable[..., object], *args: Any) -> None:
        """Calls it now."""
        call(*args)


class VirtualDealerLink:
    """See `dyorc.transport.link.ReplicaEnd`. Dials again as `UnixDealerLink` does."""

    def __init__(self, address: str, network: Network, receive_timeout_s: float) -> None:
        thread = current_thread()
        assert thread is not None
        self._world = thread.world
        self._address = address
        self._network = network
        self._timeout_s = receive_timeout_s
        self._end: End | None = None
        self._messages: deque[list[Frame]] = deque()
        self._waiting: VirtualThread | None = None
        self._redial_s = _REDIAL_S
        self._next_dial_ns = 0
        self._dial()

    @property
    def is_connected(self) -> bool:
        """See `ReplicaEnd.is_connected`."""
        return self._end is not None

    def send(self, frames: Sequence[Frame]) -> None:
        """See `ReplicaEnd.send`."""
        if self._end is not None:
            self._end.send([bytes(frame) for frame in frames])

    def receive(self, *, is_waiting: bool = True, wake: VirtualWakeUp | None = None) -> list[Frame] | None:
        """See `ReplicaEnd.receive`."""
        until_ns = self._world.now_ns + (int(self._timeout_s * 1e9) if is_waiting else 0)
        while not self._messages:
            if self._end is None:
                self._redial(until_ns, wake)
                return None
            if not is_waiting or (wake is not None and wake.is_set) or not self._wait(until_ns, wake):
                break
        return self._messages.popleft() if self._messages else None

    def close(self, linger_s: float = 1.0) -> None:
        """See `ReplicaEnd.close`."""
        if self._end is not None:
            self._end.close()
            self._end = None

    def _wait(self, until_ns: int, wake: VirtualWakeUp | None) -> bool:
        """Waits; False if the time is over."""
        self._waiting = current_thread()
        if wake is not None:
            wake.waiting = self._waiting
        is_woken = self._world.park(until_ns)
        self._waiting = None
        if wake is not None:
            wake.waiting = None
        return is_woken

    def _dial(self) -> bool:
        router = self._network.routers.get(self._address)
        if router is None or not router.is_open or router.process.state is ProcessState.DEAD:
            self._wait_longer()
            return False
        loop: Any = _AtOnce()
        near, far = self._network.pair(loop, router.loop, router.process)
        router.accept(far)
        near.deliver = lambda frames: self._take(near, frames)
        near.ended = lambda reason: self._over(near)
        self._network.watch(near)
        self._end = near
        return True

    def _take(self, end: End, frames: list[bytes]) -> None:
        if self._end is end:
            self._redial_s = _REDIAL_S
            self._messages.append([bytearray(frame) for frame in frames])
            self._wake()

    def _over(self, end: End) -> None:
        if self._end is end:
            self._end = None
            self._wait_longer()
            self._wake()

    def _wake(self) -> None:
        if self._waiting is not None:
            self._world.wake(self._waiting)

    def _redial(self, until_ns: int, wake: VirtualWakeUp | None) -> None:
        while self._next_dial_ns <= until_ns:
            if self._world.now_ns < self._next_dial_ns:
                self._wait(self._next_dial_ns, wake)
            if (wake is not None and wake.is_set) or self._dial():
                return
        self._wait(until_ns, wake)

    def _wait_longer(self) -> None:
        self._next_dial_ns = self._world.now_ns + int(self._redial_s * 1e9)
        self._redial_s = min(2 * self._redial_s, _MAX_REDIAL_S)
