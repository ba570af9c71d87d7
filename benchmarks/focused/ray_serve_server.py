# pyright: basic
# Ray ships no complete types.
"""Serves a benchmark's peer, a Ray Serve application, on a Ray of its own.

    python -m benchmarks.focused.ray_serve_server MODULE [--mode default|throughput] [--port 0] [--num-cpus 4]
        [--object-store-bytes 100000000] [--probe-bytes 1024]

MODULE must have a function `build_application()`; the replicas import it too.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from functools import partial
from typing import Any

from benchmarks.focused.turns import System
from benchmarks.peers.ray_serve.process import serve_in_child


def ray_serve(module: str, mode: str, *options: str) -> System:
    """Returns how to start Ray Serve with the application of a module."""
    return System(command=[sys.executable, "-m", "benchmarks.focused.ray_serve_server", module, "--mode", mode, *options])


def main() -> None:
    """Serves until a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module")
    parser.add_argument("--mode", choices=["default", "throughput"], default="default")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--num-cpus", type=int, default=4, help="logical CPUs: one per deployment, and one to spare")
    parser.add_argument("--object-store-bytes", type=int, default=100_000_000)
    parser.add_argument("--probe-bytes", type=int, default=4 * 256, help="length of a request that the application answers")
    arguments = parser.parse_args()
    serve_in_child(
        partial(_build, arguments.module),
        [bytes(arguments.probe_bytes)],
        path="/",
        has_haproxy=arguments.mode == "throughput",
        port=arguments.port,
        num_cpus=arguments.num_cpus,
        object_store_bytes=arguments.object_store_bytes,
    )


def _build(module: str) -> Any:
    return importlib.import_module(module).build_application()


if __name__ == "__main__":
    main()
