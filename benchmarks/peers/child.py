"""Runs a peer's server as a child and says when it answers; ends it with everything that it started, and leaves no files.

For peers whose server is a Python module that takes its workload and port from the environment. The child has its own session, so
that a Ctrl-C reaches it only through this process, and its temporary files are in one folder that is removed with it.
"""

from __future__ import annotations

import argparse
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks import wire
from benchmarks.devices.program import has_devices
from benchmarks.processes import adopt_orphans, end_children
from benchmarks.workloads import NAMES, workload
from benchmarks.workloads.base import probes

WORKLOAD_VARIABLE = "BENCHMARK_WORKLOAD"
PORT_VARIABLE = "BENCHMARK_PORT"
PATH = "/infer"
_READY_TIMEOUT_S = 120.0
_PROBE_TIMEOUT_S = 5.0
"""An answer may be lost while a server starts, e.g. if the server publishes answers before everybody has subscribed."""
_END_TIMEOUT_S = 10.0
_NUM_TRIES = 2
"""The port is chosen before the server binds it, so another process may take it in between."""
_NUM_CONCURRENT = 4
_NUM_WORKERS_ON_DEVICES = 2


class ChildEndedError(Exception):
    """The server ended before it was ready."""


def served_workload() -> str:
    """Returns, in the child, the name of the workload to serve."""
    return os.environ[WORKLOAD_VARIABLE]


def num_workers() -> int:
    """Returns, in the child, how many workers answer whole requests. With accelerators there are two, or the devices would idle
    while a worker waits for one of them; the workers share the devices."""
    return _NUM_WORKERS_ON_DEVICES if has_devices() else 1


def served_port() -> int:
    """Returns, in the child, the port to listen on."""
    return int(os.environ[PORT_VARIABLE])


def serve(
    module: str, *, stop_signal: int = signal.SIGTERM, environment: Mapping[str, str] | None = None, num_probes: int = 1
) -> None:
    """Serves the workload of the command line until SIGINT or SIGTERM.

    Args:
        module: Run as ``python -m``; it finds its temporary folder as the standard library does.
        stop_signal: The signal on which the peer shuts down in an orderly way.
        environment: Added to the child's environment. ``{folder}`` in a value stands for its temporary folder.
        num_probes: How many requests must be answered before it counts as ready; more for a peer that learns from the first ones.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", required=True, choices=NAMES)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    arguments = parser.parse_args()
    adopt_orphans()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)
    folder = Path(tempfile.mkdtemp(prefix="peer-"))  # a short path, since Unix sockets are below it
    try:
        added = {name: value.format(folder=folder) for name, value in (environment or {}).items()}
        added |= {WORKLOAD_VARIABLE: arguments.workload, "TMPDIR": str(folder)}
        _serve(module, added, arguments, num_probes, stop_signal)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        for command in end_children(_END_TIMEOUT_S):
            print(f"had to kill: {command}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)


def _exit(number: int, frame: object) -> None:
    sys.exit(0)


def _serve(module: str, environment: Mapping[str, str], arguments: argparse.Namespace, num_probes: int, stop_signal: int) -> None:
    drawn = probes(workload(arguments.workload), num_probes)
    bodies = [wire.pack(drawn[at % len(drawn)]) for at in range(num_probes)]
    for is_last in (*[False] * (_NUM_TRIES - 1), True):
        port = arguments.port or _find_free_port()
        child = subprocess.Popen(
            [sys.executable, "-m", module],
            env=os.environ | environment | {PORT_VARIABLE: str(port)},
            stdout=sys.stderr,  # the peer's own output
            start_new_session=True,
        )
        try:
            _wait_until_ready(child, port, bodies)
            print(f"Listening on http://127.0.0.1:{port}\nReady. {arguments.workload}", flush=True)
            sys.exit(f"the server ended: {child.wait()}")
        except ChildEndedError:
            if is_last:
                raise
        finally:
            if child.poll() is None:
                child.send_signal(stop_signal)


def _wait_until_ready(child: subprocess.Popen[bytes], port: int, bodies: Sequence[bytes]) -> None:
    give_up_at_s = time.monotonic() + _READY_TIMEOUT_S
    while not _answers(port, bodies[0]):
        if (code := child.poll()) is not None:
            raise ChildEndedError(f"the server ended before it was ready: {code}")
        if time.monotonic() > give_up_at_s:
            raise TimeoutError(f"no answer to a request in {_READY_TIMEOUT_S:.0f} s")
        time.sleep(0.1)
    with ThreadPoolExecutor(_NUM_CONCURRENT) as threads:
        if not all(threads.map(partial(_answers, port), bodies)):
            raise ChildEndedError("the server answered the first request, but not one after it")


def _answers(port: int, body: bytes) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PROBE_TIMEOUT_S)
    try:
        connection.request("POST", PATH, body, {"Content-Type": "application/octet-stream"})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
