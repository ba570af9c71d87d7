"""Starts the worker processes of one measurement, tells them when to begin, watches them and ends them."""

import contextlib
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, TypeAlias

import msgspec

from loadgen.errors import WorkerFailedError
from loadgen.progress import Progress, combine_progress
from loadgen.recording import Records
from loadgen.worker import WorkerPlan

Moment: TypeAlias = tuple[int, Callable[[], None]]
"""A time of the monotonic clock, in nanoseconds, and what to do then."""

_READY_S = 120.0
_CHECKING_S = 120.0
"""How long a worker may take to get ready, and at the end to judge its answers."""
_START_IN_NS = 200_000_000
_STOP_S = 5.0
_MAX_SHOWN = 2000


class Workers:
    """Starts the workers when entered; none of them is left afterwards.

    Args:
        folder: The folder for their files.
    """

    def __init__(self, plans: Sequence[WorkerPlan], folder: Path) -> None:
        self._plans = plans
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lines: list[bytes] = [b""] * len(plans)
        self._progress: list[Progress] = [Progress()] * len(plans)
        self._num_ready = 0
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        try:
            for plan in self._plans:
                self._start(plan)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, plan: WorkerPlan) -> None:
        path = self._folder / f"plan-{plan.number}.json"
        path.write_bytes(msgspec.json.encode(plan))
        command = [sys.executable, "-P", "-m", "loadgen.worker", str(path), str(self._result(plan.number))]
        with self._errors(plan.number).open("wb") as errors:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is meant for us, and we tell the workers
            )
        self._processes.append(process)
        assert process.stdout is not None
        self._selector.register(process.stdout, selectors.EVENT_READ, plan.number)

    def _result(self, number: int) -> Path:
        return self._folder / f"result-{number}.npz"

    def _errors(self, number: int) -> Path:
        return self._folder / f"errors-{number}.txt"

    def run(
        self, moments: Callable[[int], Sequence[Moment]], end_s: float, show: Callable[[Progress], None] | None
    ) -> list[Records]:
        """Lets the workers begin together, and waits for their results.

        Args:
            moments: What to do meanwhile, given the time at which they begin.
            end_s: For how long they send and wait for answers.

        Raises:
            WorkerFailedError: If a worker fails, or does not end in time.
        """
        self._watch(lambda: self._num_ready == len(self._plans), _READY_S, (), None)
        start_ns = time.monotonic_ns() + _START_IN_NS
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has failed, and the watch says why
                process.stdin.write(b"%d\n" % start_ns)
                process.stdin.flush()
        self._watch(lambda: not self._selector.get_map(), end_s + _CHECKING_S, sorted(moments(start_ns), key=_time), show)
        return [Records.load(self._result(plan.number)) for plan in self._plans]

    def _watch(
        self, is_over: Callable[[], bool], limit_s: float, moments: Sequence[Moment], show: Callable[[Progress], None] | None
    ) -> None:
        waiting = list(moments)
        limit_ns = time.monotonic_ns() + round(limit_s * 1e9)
        while not is_over():
            until_ns = min(limit_ns, waiting[0][0]) if waiting else limit_ns
            for key, _ in self._selector.select(max(0, until_ns - time.monotonic_ns()) / 1e9):
                self._read(key.data, show)
            while waiting and time.monotonic_ns() >= waiting[0][0]:
                waiting.pop(0)[1]()
            if time.monotonic_ns() > limit_ns:
                raise WorkerFailedError(f"{len(self._selector.get_map())} workers did not finish within {limit_s:.0f} s")
        for _, act in waiting:  # everything was over before
            act()

    def _read(self, number: int, show: Callable[[Progress], None] | None) -> None:
        stdout = self._processes[number].stdout
        assert stdout is not None
        data = os.read(stdout.fileno(), 65536)
        if not data:
            self._selector.unregister(stdout)
            self._ended(number)
            return
        *lines, self._lines[number] = (self._lines[number] + data).split(b"\n")
        for line in lines:
            if line == b"ready":
                self._num_ready += 1
            elif line.startswith(b"{"):
                self._progress[number] = msgspec.json.decode(line, type=Progress)
                if show is not None:
                    show(combine_progress(self._progress))

    def _ended(self, number: int) -> None:
        status = self._processes[number].wait(_STOP_S)
        if status != 0:
            said = self._errors(number).read_text("utf-8", "replace").strip()[-_MAX_SHOWN:]
            raise WorkerFailedError(f"worker {number} ended with status {status}: {said or 'it said nothing'}")

    def __exit__(self, *error: object) -> None:
        self._selector.close()
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()  # tells it to stop
        limit_s = time.monotonic() + _STOP_S
        for process in self._processes:
            try:
                process.wait(max(0, limit_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _time(moment: Moment) -> int:
    return moment[0]
