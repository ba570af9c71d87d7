"""A slow wire between two network namespaces, since this kernel's own way to delay packets (netem) is often not built in.

Each namespace gets a TAP device; this process holds the other end of both, and hands a frame on when its time has come. Meant to
run as a separate process, so that it does not share an interpreter with what is being tested:

    python -m tests.link_relay NAMESPACE NAMESPACE DEVICE

Prints ``ready``, then obeys lines on its standard input, and ends with it: ``delay SECONDS`` (each way), ``cut``, ``heal``.
"""

import ctypes
import fcntl
import heapq
import itertools
import os
import select
import struct
import sys
import time

_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_CLONE_NEWNET = 0x40000000
_MAX_FRAME_BYTES = 65536
_MAX_FRAMES_AT_ONCE = 64
_IDLE_S = 0.05


def enter_namespace(descriptor: int) -> None:
    """Moves the calling thread, and threads and processes that it starts from now on, into a network namespace.

    Raises:
        OSError: If it may not.
    """
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")


class Relay:
    """Two TAP devices, and the frames that are on their way between them.

    Args:
        namespaces: Names of the two.
        device: What the device is called in each.
    """

    def __init__(self, namespaces: tuple[str, str], device: str) -> None:
        self._taps = [_open_tap(namespace, device) for namespace in namespaces]
        self._peers = {self._taps[0]: self._taps[1], self._taps[1]: self._taps[0]}
        self._on_their_way: list[tuple[float, int, int, bytes]] = []
        self._order = itertools.count()
        self._delay_s = 0.0
        self._is_cut = False

    def run(self) -> None:
        """Hands frames on until standard input ends."""
        print("ready", flush=True)
        while True:
            self._deliver()
            for descriptor in select.select([*self._taps, 0], [], [], self._wait_s())[0]:
                if descriptor:
                    self._take(descriptor)
                elif not (line := os.read(0, 1024)):
                    return
                else:
                    for order in line.decode().splitlines():
                        self._obey(*order.split())

    def _obey(self, verb: str, *values: str) -> None:
        match verb:
            case "delay":
                self._delay_s = float(values[0])
            case "cut" | "heal":
                self._is_cut = verb == "cut"
            case _:
                raise ValueError(f"{verb!r} is no order, expected delay, cut or heal")

    def _wait_s(self) -> float:
        return max(0.0, self._on_their_way[0][0] - time.monotonic()) if self._on_their_way else _IDLE_S

    def _take(self, tap: int) -> None:
        for _ in range(_MAX_FRAMES_AT_ONCE):
            try:
                frame = os.read(tap, _MAX_FRAME_BYTES)
            except BlockingIOError:
                return
            if not self._is_cut:
                due_s = time.monotonic() + self._delay_s
                heapq.heappush(self._on_their_way, (due_s, next(self._order), self._peers[tap], frame))

    def _deliver(self) -> None:
        while self._on_their_way and self._on_their_way[0][0] <= time.monotonic():
            *_, tap, frame = heapq.heappop(self._on_their_way)
            try:
                os.write(tap, frame)
            except OSError:
                continue  # the device is not up, or its queue is full: a wire loses frames, too


def _open_tap(namespace: str, device: str) -> int:
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
    enter_namespace(there)
    try:
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _IFF_TAP | _IFF_NO_PI))
        return tap
    finally:
        enter_namespace(home)
        os.close(home)
        os.close(there)


if __name__ == "__main__":
    Relay((sys.argv[1], sys.argv[2]), sys.argv[3]).run()
