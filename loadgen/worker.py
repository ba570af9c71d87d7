"""One process that sends: ``python -m loadgen.worker PLAN.json RESULT.npz``.

It writes ``ready`` to its standard output, then waits for a line on its standard input that says when to start (in nanoseconds of
the monotonic clock, which all processes of a machine share). It sends requests, reports its progress as lines of JSON, and writes
the result. It ends by itself when its time is over, and at once when its input is closed or on SIGINT or SIGTERM.
"""

import asyncio
import contextlib
import dataclasses
import gc
import os
import signal
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import uvloop

from loadgen.checking import Checker
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.progress import Progress, progress_of
from loadgen.recording import Recorder, Records
from loadgen.schedule import Schedule, plan, span_of
from loadgen.sending import ClosedLoop, OpenLoop, Sender, Window, exchange_of
from loadgen.targets.base import RequestFailedError, Target, TargetSpec
from loadgen.targets.opening import open_target

_TICK_S = 0.5
_NS_PER_S = 1_000_000_000
_GC_THRESHOLD = 200_000
"""Garbage collection delays requests, so it is made rare. It is not turned off, because errors leave garbage behind."""
STOPPED = 130
"""The exit status of a worker that was told to stop."""


class WorkerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Instructions for a worker.

    Attributes:
        pool: The pool's file.
        number: This worker's number, from 0.
    """

    spec: TargetSpec
    load: Load
    pool: str
    number: int


class ParentCommands:
    """Listens to the parent on standard input, until the parent closes it or goes away; and to signals."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.start: asyncio.Future[int] = loop.create_future()
        self.stop = asyncio.Event()
        self._loop = loop
        self._line = b""
        loop.add_reader(sys.stdin.fileno(), self._read)
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, self.stop.set)

    def _read(self) -> None:
        data = os.read(sys.stdin.fileno(), 4096)
        self._line += data
        if not data:
            self._loop.remove_reader(sys.stdin.fileno())
            self.stop.set()
        elif self._line.endswith(b"\n") and not self.start.done():
            self.start.set_result(int(self._line))


def write_line(line: bytes) -> None:
    """Writes a line to the parent if the parent is reading, without waiting."""
    with contextlib.suppress(OSError):
        os.write(sys.stdout.fileno(), line + b"\n")


class Worker:
    """Sends one share of a load.

    Raises:
        ValueError: If the plan cannot be carried out.
    """

    def __init__(self, worker_plan: WorkerPlan) -> None:
        self._worker_plan = worker_plan
        self._pool = Pool.load(Path(worker_plan.pool))
        self._schedule: Schedule | None = None if worker_plan.load.arrivals == "closed" else plan(worker_plan.load)
        self._end_ns = span_of(worker_plan.load)[1] if self._schedule is None else self._schedule.end_ns
        self._target: Target = open_target(worker_plan.spec, self._pool)
        complaint = Checker(self._pool, self._target).complaint if self._pool.answers else None
        self._recorder = Recorder(complaint, len(self._pool.inputs))
        self._cpu_s = 0.0

    async def measure(self) -> Records | None:
        """Sends when told to. Returns None if told to stop before the end."""
        orders = ParentCommands(asyncio.get_running_loop())
        stopping = asyncio.create_task(orders.stop.wait())
        try:
            async with self._target as target:
                write_line(b"ready")
                await asyncio.wait({orders.start, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if stopping.done():
                    return None
                start_ns = orders.start.result()
                ended_ns = await self._send(self._sender(target, start_ns), start_ns, stopping)
        finally:
            stopping.cancel()
        if orders.stop.is_set():
            return None
        records = self._recorder.finish(ended_ns)
        return dataclasses.replace(records, start_ns=start_ns, cpu_ratio=self._cpu_s / (self._end_ns / _NS_PER_S))

    def _sender(self, target: Target, start_ns: int) -> Sender:
        exchange = exchange_of(target, self._recorder, is_streamed=self._worker_plan.spec.is_streamed)
        load, number, num_requests = self._worker_plan.load, self._worker_plan.number, len(self._pool.inputs)
        if self._schedule is not None:
            numbers, times_ns = self._schedule.share(number, load.num_workers)
            self._recorder.plan(numbers % num_requests, times_ns + start_ns)
            return OpenLoop(exchange, self._recorder)
        num_clients = len(range(number, load.num_clients, load.num_workers))
        turns = (np.arange(num_requests * load.num_workers)[number :: load.num_workers] % num_requests).tolist()
        return ClosedLoop(exchange, self._recorder, num_clients, turns, Window(start_ns, start_ns + self._end_ns))

    async def _send(self, sender: Sender, start_ns: int, stopping: "asyncio.Task[bool]") -> int:
        """Sends until everything is answered, the wait is over, or the worker is told to stop. Returns the time."""
        loop = asyncio.get_running_loop()
        gc.collect()
        gc.freeze()
        gc.set_threshold(_GC_THRESHOLD, 50, 1000)
        cpu_s = time.process_time()

        def stop_watch() -> None:
            self._cpu_s = time.process_time() - cpu_s

        over = loop.call_later((start_ns + self._end_ns - time.monotonic_ns()) / _NS_PER_S, stop_watch)
        deadline_s = (start_ns + self._end_ns - time.monotonic_ns()) / _NS_PER_S + self._worker_plan.load.drain_s
        sending, telling = asyncio.create_task(sender.send_all()), asyncio.create_task(self._report_progress(sender))
        await asyncio.wait({sending, stopping}, timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
        ended_ns = time.monotonic_ns()
        if not self._cpu_s:
            stop_watch()
        over.cancel()
        telling.cancel()
        if not sending.done():
            sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending
        return ended_ns

    async def _report_progress(self, sender: Sender) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            write_line(msgspec.json.encode(self._progress(sender)))

    def _progress(self, sender: Sender) -> Progress:
        return progress_of(self._recorder, sender.num_in_flight)


def main() -> int:
    """Runs one worker and returns the exit status."""
    worker_plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=WorkerPlan)
    try:
        os.set_blocking(sys.stdout.fileno(), False)
        with contextlib.suppress(PermissionError):
            os.nice(worker_plan.load.niceness)
        records = uvloop.run(Worker(worker_plan).measure())
    except (ValueError, RequestFailedError) as error:
        print(error, file=sys.stderr)
        return 1
    if records is None:
        return STOPPED
    records.save(Path(sys.argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
