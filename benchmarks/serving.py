"""A server while it is measured: a process that says where it listens and when it is ready."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import end_children

ROOT = Path(__file__).resolve().parents[1]
_READY_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 60.0
_ORPHAN_GRACE_S = 10.0
_HTTP = re.compile(r"Listening on http://([\w.]+):(\d+)")
_GRPC = re.compile(r"(?i)\bgrpc\b[^\d]*([\d.]+):(\d+)")

# Ray starts its workers with a niceness of 15; others' processes have none.
_ENVIRONMENT = {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1"}


class BenchmarkError(Exception):
    """A server did not start or stop as it should, or a measurement failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server listens; the gRPC port is None if it has none."""

    host: str
    http_port: int
    grpc_port: int | None

    @property
    def url(self) -> str:
        """Of HTTP."""
        return f"http://{self.host}:{self.http_port}"


@contextmanager
def serving(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Generator[tuple[Address, subprocess.Popen[str]]]:
    """Runs a server in a session of its own and yields where it listens, once it is ready. Leaves none of its processes.

    The repository's root is its working directory, and where its modules are looked for. Has to be called by a process that has
    adopted its orphans (`benchmarks.processes`).

    Raises:
        BenchmarkError: If it does not become ready; shows what it printed last.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | _ENVIRONMENT | {"PYTHONPATH": str(ROOT)} | dict(environment or {}),
        cwd=ROOT,
        start_new_session=True,  # Ctrl-C is for this process only, which then stops the server
    )
    try:
        yield _wait_until_ready(process), process
    finally:
        _stop(process)


def _wait_until_ready(process: subprocess.Popen[str]) -> Address:
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(process, lines), daemon=True).start()
    give_up_at_s = time.monotonic() + _READY_TIMEOUT_S
    last: deque[str] = deque(maxlen=30)
    http: re.Match[str] | None = None
    grpc: re.Match[str] | None = None
    while True:
        try:
            line = lines.get(timeout=max(0.0, give_up_at_s - time.monotonic()))
        except queue.Empty:
            line = None
        if line is None:
            raise BenchmarkError("the server did not become ready; its last lines:\n" + "".join(last))
        last.append(line)
        http = http or _HTTP.search(line)
        grpc = grpc or _GRPC.search(line)
        if http is not None and line.startswith("Ready"):
            return Address(host=http[1], http_port=int(http[2]), grpc_port=int(grpc[2]) if grpc else None)


def _read_lines(process: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:  # to the end, so that the server never waits for a reader
        lines.put(line)
    lines.put(None)


def _stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        print(f"{process.args} did not stop in {_STOP_TIMEOUT_S:.0f} s and was killed", file=sys.stderr)
    for command in end_children(_ORPHAN_GRACE_S):
        print(f"left behind, and killed: {command}", file=sys.stderr)
