"""Serves `x + 1` by a real Triton server, from an environment that has `nvidia-pytriton`, until it gets SIGINT or SIGTERM.

    .venv-peers/triton/bin/python -m benchmarks.focused.gateway.triton_server [--kind python_backend] [--max-queue-delay-us 0]

Prints where it listens and when it is ready, like `dyorc serve`. Kinds:

    pytriton          the function runs in this process, as PyTriton's own documentation binds it
    python_backend    the function is a model of Triton's Python back end, without PyTriton: one process and one hop less

Both use Triton's dynamic batching with the given queue delay, or no batching (`--max-queue-delay-us -1`). Everything that either
writes goes into a temporary folder, including PyTriton's cache, which is normally below HOME.
"""
# pyright: basic
# pyright: reportMissingImports=false
# PyTriton is untyped, and installed in another environment.

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.peers.triton.tritonserver import free_ports, libpython_folder, tritonserver
from benchmarks.processes import adopt_orphans

_NUM_ITEMS = 1024
_MAX_BATCH_SIZE = 32
_READY_TIMEOUT_S = 60.0
_POLL_S = 0.02

_CONFIG = """
name: "plus_one"
backend: "python"
max_batch_size: {max_batch_size}
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ {num_items} ] }} ]
output [ {{ name: "output" data_type: TYPE_FP32 dims: [ {num_items} ] }} ]
instance_group [ {{ kind: KIND_CPU count: {num_instances} }} ]
{batching}
"""

_MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(one, "x").as_numpy() for one in requests]
        raised = np.concatenate(arrays) + np.float32(1)
        answers, at = [], 0
        for array in arrays:
            part = raised[at : at + len(array)]
            at += len(array)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("output", part)]))
        return answers
"""


def _write_model(folder: Path, arguments: argparse.Namespace) -> None:
    batching = ""
    if arguments.max_queue_delay_us >= 0:
        batching = f"dynamic_batching {{ max_queue_delay_microseconds: {arguments.max_queue_delay_us} }}"
    (folder / "plus_one" / "1").mkdir(parents=True)
    (folder / "plus_one" / "1" / "model.py").write_text(_MODEL)
    (folder / "plus_one" / "config.pbtxt").write_text(
        _CONFIG.format(
            max_batch_size=_MAX_BATCH_SIZE, num_items=_NUM_ITEMS, num_instances=arguments.num_instances, batching=batching
        )
    )


@contextmanager
def python_backend(arguments: argparse.Namespace, http_port: int, grpc_port: int) -> Generator[None]:
    """Runs the server's own program while entered."""
    options = [f"--http-port={http_port}", f"--grpc-port={grpc_port}"]
    with tempfile.TemporaryDirectory(prefix="triton-") as name:
        _write_model(Path(name) / "models", arguments)
        with tritonserver(Path(name), options):
            yield


@contextmanager
def pytriton(arguments: argparse.Namespace, http_port: int, grpc_port: int) -> Generator[None]:
    """Runs PyTriton in this process while entered."""
    import numpy as np
    from pytriton.decorators import batch
    from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
    from pytriton.triton import Triton, TritonConfig

    @batch
    def plus_one(x: Any) -> list[Any]:
        return [x + np.float32(1)]

    config = TritonConfig(
        http_address="127.0.0.1", http_port=http_port, grpc_address="127.0.0.1", grpc_port=grpc_port, allow_metrics=False
    )
    delay_us = max(0, arguments.max_queue_delay_us)
    model = ModelConfig(max_batch_size=_MAX_BATCH_SIZE, batcher=DynamicBatcher(max_queue_delay_microseconds=delay_us))
    with Triton(config=config) as server:
        server.bind(
            model_name="plus_one",
            infer_func=[plus_one] * arguments.num_instances,
            inputs=[Tensor(name="x", dtype=np.float32, shape=(_NUM_ITEMS,))],
            outputs=[Tensor(name="output", dtype=np.float32, shape=(_NUM_ITEMS,))],
            config=model,
        )
        server.run()
        yield


KINDS = {"pytriton": pytriton, "python_backend": python_backend}


def _wait_until_ready(http_port: int, stop: threading.Event) -> None:
    give_up_at_s = time.monotonic() + _READY_TIMEOUT_S
    while not stop.wait(_POLL_S):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/v2/models/plus_one/ready", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > give_up_at_s:
                sys.exit(f"Triton was not ready in {_READY_TIMEOUT_S:.0f} s")


def main() -> None:
    """Serves until a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=sorted(KINDS), default="python_backend")
    parser.add_argument("--max-queue-delay-us", type=int, default=0, help="-1 turns dynamic batching off")
    parser.add_argument("--num-instances", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.kind == "pytriton" and libpython_folder() not in os.environ.get("LD_LIBRARY_PATH", ""):
        os.environ["LD_LIBRARY_PATH"] = libpython_folder()
    adopt_orphans()
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    with tempfile.TemporaryDirectory(prefix="triton-home-") as home:
        os.environ |= {"HOME": home, "XDG_CACHE_HOME": home, "XDG_CONFIG_HOME": home, "PYTRITON_HOME": home}
        http_port, grpc_port = free_ports(2)
        with KINDS[arguments.kind](arguments, http_port, grpc_port):
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, on_signal)
            _wait_until_ready(http_port, stop)
            print(f"Listening on http://127.0.0.1:{http_port}", flush=True)
            print(f"gRPC on 127.0.0.1:{grpc_port}", flush=True)
            print("Ready", flush=True)
            stop.wait()


if __name__ == "__main__":
    main()
