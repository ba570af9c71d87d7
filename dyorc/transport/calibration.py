"""Measures, when a process starts, from which size shared memory is cheaper than a message."""

import socket
import time
from collections.abc import Callable

import numpy as np

from dyorc.transport.arena import Arena
from dyorc.transport.arena_views import ArenaView

_SMALL, _LARGE = 4096, 65536
_NUM_ROUNDS = 15
_NUM_HOPS = 2
"""A tensor in a message passes through the orchestrator."""

_BOUNDS = (4096, 2**20)
"""Bounds of the result, in case the measurement was disturbed."""


def measure_inline_limit(arena: Arena, view: ArenaView) -> int:
    """Returns the size in bytes of a tensor that costs as much in a message as in shared memory.

    A message costs m seconds per byte and hop; shared memory b + a seconds per byte. They are equal at b / (2m - a).
    Cost: about 5 ms.
    """
    small_s, large_s = (_fastest_s(lambda size=size: _store_once(arena, view, size)) for size in (_SMALL, _LARGE))
    per_byte_s = max(0.0, large_s - small_s) / (_LARGE - _SMALL)
    base_s = max(0.0, small_s - per_byte_s * _SMALL)
    return limit_for(base_s, per_byte_s, _message_s() / _LARGE)


def limit_for(base_s: float, per_byte_s: float, message_per_byte_s: float) -> int:
    """Returns where the two lines meet."""
    gain_s = _NUM_HOPS * message_per_byte_s - per_byte_s
    limit = base_s / gain_s if gain_s > 0 else _BOUNDS[1]
    return int(min(max(limit, _BOUNDS[0]), _BOUNDS[1]))


_source = np.zeros(_LARGE, np.uint8)


def _store_once(arena: Arena, view: ArenaView, num_bytes: int) -> None:
    """Measures the whole cost of a tensor in shared memory, for its producer and its consumer."""
    block = arena.allocate(num_bytes)
    if block is None:
        return
    np.copyto(np.frombuffer(block.memory, np.uint8), _source[:num_bytes])
    arena.publish(block)
    view.writable(block.block_id, block.offset, num_bytes)
    view.is_intact(block.block_id)
    view.restore(block.offset, num_bytes)
    arena.free(block.block_id)


def _message_s() -> float:
    """Measures the seconds to send 64 KiB through a local socket."""
    buffer = memoryview(bytearray(_LARGE))
    sender, receiver = socket.socketpair()
    with sender, receiver:
        sender.setblocking(False)

        def send_once() -> None:
            sent = received = 0
            while received < _LARGE:
                if sent < _LARGE:
                    sent += sender.send(_source.data[sent:])
                received += receiver.recv_into(buffer[received:])

        return _fastest_s(send_once)


def _fastest_s(act: Callable[[], None]) -> float:
    best_s = float("inf")
    for _ in range(_NUM_ROUNDS):
        started_s = time.perf_counter()
        act()
        best_s = min(best_s, time.perf_counter() - started_s)
    return best_s
