"""Serves a workload's programs by a real Triton server (2.51), until it gets SIGINT or SIGTERM.

    .venv-peers/triton/bin/python -m benchmarks.peers.triton.server --workload cascade [--max-queue-delay-us 0]

The server's own program runs on a model repository (`models`), without PyTriton, whose functions are one process and one hop
further away. The client (`client`) decides which program comes next, or an ensemble does if there is nothing to decide. All files
go into a temporary folder.

Settings: one instance of each program, dynamic batching without a delay, HTTP. Tried on a machine that was too busy to tell which
is faster: gRPC (`--grpc`) and HTTP; the chain with and without batching (`--max-queue-delay-us -1`). Not tried: a delay, more
instances, composition in the back end (BLS).
"""
# pyright: basic

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import FrameType

from benchmarks.peers.triton.models import write_repository
from benchmarks.peers.triton.tritonserver import STOP_TIMEOUT_S, free_ports, tritonserver
from benchmarks.processes import adopt_orphans
from benchmarks.workloads import NAMES, workload
from benchmarks.workloads.base import Workload

_READY_TIMEOUT_S = 120.0
_POLL_S = 0.02
_NUM_TRIES = 2
"""Another process may take a free port before Triton does."""


class _EndedError(Exception):
    """Triton ended before it was ready."""


def main() -> None:
    """Serves until a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=NAMES, required=True)
    parser.add_argument("--port", type=int, default=0, help="0 stands for any free port")
    parser.add_argument("--grpc", action="store_true", help="listen for gRPC too")
    parser.add_argument("--max-queue-delay-us", type=int, default=0, help="-1 turns dynamic batching off")
    arguments = parser.parse_args()
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    adopt_orphans()
    for tries_left in reversed(range(_NUM_TRIES)):
        try:
            _serve(workload(arguments.workload), arguments, stop)
            return
        except _EndedError as error:
            if stop.is_set() or not tries_left:
                sys.exit(str(error))


def _serve(served: Workload, arguments: argparse.Namespace, stop: threading.Event) -> None:
    free = free_ports(2)
    http_port, grpc_port = arguments.port or free[0], free[1]
    options = [f"--http-port={http_port}", f"--allow-grpc={str(arguments.grpc).lower()}", f"--grpc-port={grpc_port}"]
    with tempfile.TemporaryDirectory(prefix="triton-") as name:
        write_repository(Path(name) / "models", served, arguments.max_queue_delay_us)
        with tritonserver(Path(name), options) as process:
            _wait_until_ready(process, http_port, stop)
            if stop.is_set():
                return
            print(f"Listening on http://127.0.0.1:{http_port}", flush=True)
            if arguments.grpc:
                print(f"gRPC on 127.0.0.1:{grpc_port}", flush=True)
            print("Ready", flush=True)
            while not stop.wait(0.5):
                if process.poll() is not None:
                    sys.exit(f"Triton ended by itself, with {process.returncode}")


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, stop: threading.Event) -> None:
    give_up_at_s = time.monotonic() + _READY_TIMEOUT_S
    while True:
        time.sleep(_POLL_S)
        if stop.is_set():  # not at once, because if Triton ends while it loads, a folder of its back end stays in /tmp
            give_up_at_s = min(give_up_at_s, time.monotonic() + STOP_TIMEOUT_S)
        if process.poll() is not None:
            raise _EndedError(f"Triton ended with {process.returncode} before it was ready")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > give_up_at_s:
                sys.exit(f"Triton was not ready in {_READY_TIMEOUT_S:.0f} s")


if __name__ == "__main__":
    main()
