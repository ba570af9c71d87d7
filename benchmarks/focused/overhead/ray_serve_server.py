# pyright: basic
# Ray ships no complete types.
"""Serves a benchmark's peer, an application of Ray Serve's, on a Ray of its own.

    python ray_serve_server.py APP.py [--mode default|throughput] [--port 0] [--num-cpus 4] [--object-store-bytes 100000000]
        [--probe-bytes 1024]

APP.py has a function `build_application()`; the replicas import it, so its folder is where it is looked for. To be run with the
repository's root among Python's paths.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.ray_serve.process import serve_in_child


def main() -> None:
    """Serves until a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["default", "throughput"], default="default")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("app", type=Path)
    parser.add_argument("--num-cpus", type=int, default=4, help="logical ones: as many as deployments, and one to spare")
    parser.add_argument("--object-store-bytes", type=int, default=100_000_000)
    parser.add_argument("--probe-bytes", type=int, default=4 * 256, help="length of a request that is answered")
    arguments = parser.parse_args()
    beside = str(arguments.app.resolve().parent)
    sys.path.insert(0, beside)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (beside, os.environ.get("PYTHONPATH"))))  # for the replicas
    serve_in_child(
        partial(_build, arguments.app.stem),
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
