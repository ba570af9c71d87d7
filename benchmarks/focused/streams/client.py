"""Clients that read streams side by side in one process, check each part, and note how old it is when it comes."""

from __future__ import annotations

import asyncio
import struct
import time
from dataclasses import dataclass, field

import numpy as np

from benchmarks.focused.streams.work import ITEM_BYTES, NUM_LATER_STAGES, STAGE_STEP, Item
from benchmarks.serving import BenchmarkError
from dyorc.protocol.media_types import FRAME_LENGTHS
from loadgen.targets.base import RequestFailedError, TargetSpec
from loadgen.targets.connections import Connections
from loadgen.targets.layout import http_post, oip_request

_ITEM = struct.Struct("<qq")
_STEPS = NUM_LATER_STAGES * STAGE_STEP


@dataclass(slots=True)
class StreamTimes:
    """What the clients saw, in nanoseconds.

    Attributes:
        first_ns: From each request to its first part.
        age_ns: How long after it was due each part came.
        num_parts: Parts that came in the measured time.
        cpu_s: Processor time of the clients meanwhile.
    """

    first_ns: list[int] = field(default_factory=list[int])
    age_ns: list[int] = field(default_factory=list[int])
    num_parts: int = 0
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLoad:
    """How many clients read streams of how many parts. Each begins its next stream when one has ended.

    Attributes:
        pause_us: Between the parts of a stream; 0 for none.
    """

    num_clients: int
    num_parts: int
    pause_us: int
    warm_up_s: float
    duration_s: float


def request_of(url: str, model: str, plan: Item) -> bytes:
    """Returns a request as bytes: of the Open Inference Protocol for a model; without one, the plan alone."""
    if not model:
        return http_post(url, "/", (), {}, plan.tobytes())
    path, headers, body = oip_request(model, {"plan": plan}, is_streamed=True)
    return http_post(url, path, headers, {}, body)


async def read_streams(url: str, model: str, load: StreamLoad) -> StreamTimes:
    """Reads streams for a while.

    Raises:
        BenchmarkError: If a stream fails, or a part is missing, wrong or out of order.
    """
    request = request_of(url, model, np.array([load.num_parts, load.pause_us]))
    seen = StreamTimes()
    begin_ns = time.monotonic_ns() + int(load.warm_up_s * 1e9)
    end_ns = begin_ns + int(load.duration_s * 1e9)
    cpu_s = 0.0

    async def client(connections: Connections, number: int) -> None:
        await asyncio.sleep(number / load.num_clients * load.pause_us / 1e6)
        while time.monotonic_ns() < end_ns:
            reader = _Reader(seen, begin_ns, end_ns)
            try:
                status, _, body = await connections.exchange(request, reader.feed)
            except RequestFailedError as error:
                raise BenchmarkError(str(error)) from error
            if reader.wrong:
                raise BenchmarkError(reader.wrong)
            if status != 200 or reader.num_read != load.num_parts:
                raise BenchmarkError(f"status {status}, {reader.num_read} of {load.num_parts} parts: {body[-300:]!r}")

    def note_cpu() -> None:
        nonlocal cpu_s
        cpu_s = time.process_time()

    asyncio.get_running_loop().call_later(load.warm_up_s, note_cpu)
    try:
        async with Connections(TargetSpec(protocol="raw", url=url)) as connections, asyncio.TaskGroup() as clients:
            for number in range(load.num_clients):
                clients.create_task(client(connections, number))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    seen.cpu_s = time.process_time() - cpu_s
    return seen


class _Reader:
    """Reads one stream of frames, each of which ends with a part."""

    __slots__ = ("_begin_ns", "_end_ns", "_rest", "_seen", "_sent_ns", "num_read", "wrong")

    def __init__(self, seen: StreamTimes, begin_ns: int, end_ns: int) -> None:
        self._seen = seen
        self._begin_ns, self._end_ns = begin_ns, end_ns
        self._rest = b""
        self._sent_ns = time.monotonic_ns()
        self.num_read = 0
        self.wrong = ""

    def feed(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        is_measured = self._begin_ns <= now_ns < self._end_ns
        data, at = self._rest + data, 0
        while len(data) - at >= FRAME_LENGTHS.size:
            end = at + FRAME_LENGTHS.size + sum(FRAME_LENGTHS.unpack_from(data, at))
            if end > len(data):
                break
            number, due_ns = _ITEM.unpack_from(data, end - ITEM_BYTES)
            if number != self.num_read + _STEPS and not self.wrong:
                self.wrong = f"part {self.num_read} is {number}, expected {self.num_read + _STEPS}: {data[at:end]!r}"
            if is_measured:
                self._seen.num_parts += 1
                self._seen.age_ns.append(now_ns - due_ns)
                if self.num_read == 0:
                    self._seen.first_ns.append(now_ns - self._sent_ns)
            self.num_read += 1
            at = end
        self._rest = data[at:]
