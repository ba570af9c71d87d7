"""Serves `x + 1` by a real Triton server, from an environment that has `nvidia-pytriton`, until it gets SIGINT or SIGTERM.

    .venv-triton/bin/python tests/bench/gateway/triton_server.py [--kind python_backend] [--max-queue-delay-us 0]

Says where it listens and when it is ready, like `dyorc serve`. Kinds:

    pytriton          the function runs in this process, as PyTriton's own documentation binds it
    python_backend    the function is a model of Triton's Python back end, without PyTriton: one process and one hop less

Each with Triton's dynamic batching, with the queue delay that is asked for, or without (`--max-queue-delay-us -1`). Everything
that either writes goes into a temporary folder, PyTriton's cache included, which is below HOME.
"""
# pyright: basic
# pyright: reportMissingImports=false
# Pytriton is untyped, and in another environment.

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

_NUM_ITEMS = 1024
_MAX_BATCH_SIZE = 32
_READY_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0
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


def _free_ports(num: int) -> list[int]:
    """Ports that are free now; Triton cannot be told to take any."""
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.socket()) for _ in range(num)]
        for one in opened:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in opened]


def _package() -> Path:
    found = find_spec("pytriton")
    if found is None or found.origin is None:
        sys.exit(f"{sys.executable} has no nvidia-pytriton")
    return Path(found.origin).parent / "tritonserver"


def _shared_libraries(package: Path) -> Path:
    """Where the wheel has put the libraries that the server is linked with; a wheel that was not repaired has them elsewhere."""
    repaired = package.parent.parent / "nvidia_pytriton.libs"
    return repaired if repaired.is_dir() else package / "external_libs"


def _library_path() -> str:
    """So that the back end's process loads the interpreter's own libpython, not one of the system."""
    return sysconfig.get_config_var("LIBDIR") or ""


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
    """Runs the server's own program while it is entered."""
    package = _package()
    prefix = f"bench-{uuid.uuid4().hex[:12]}"
    with tempfile.TemporaryDirectory(prefix="triton-") as name:
        folder = Path(name)
        _write_model(folder / "models", arguments)
        shutil.copytree(package / "backends", folder / "backends")
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        stub = package / "python_backend_stubs" / version / "triton_python_backend_stub"
        shutil.copy(stub, folder / "backends" / "python")
        command = [
            str(package / "bin" / "tritonserver"),
            f"--model-repository={folder / 'models'}",
            f"--backend-directory={folder / 'backends'}",
            f"--backend-config=python,shm-region-prefix-name={prefix}",
            *("--http-address=127.0.0.1", f"--http-port={http_port}"),
            *("--grpc-address=127.0.0.1", f"--grpc-port={grpc_port}"),
            *("--allow-metrics=false", "--log-info=false"),
        ]
        libraries = ":".join([_library_path(), str(_shared_libraries(package))])
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        process = subprocess.Popen(command, env=os.environ | {"LD_LIBRARY_PATH": libraries, "PATH": path})
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for left in Path("/dev/shm").glob(f"{prefix}*"):
                left.unlink(missing_ok=True)


@contextmanager
def pytriton(arguments: argparse.Namespace, http_port: int, grpc_port: int) -> Generator[None]:
    """Runs PyTriton in this process while it is entered."""
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
    if arguments.kind == "pytriton" and _library_path() not in os.environ.get("LD_LIBRARY_PATH", ""):
        os.environ["LD_LIBRARY_PATH"] = _library_path()
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    with tempfile.TemporaryDirectory(prefix="triton-home-") as home:
        os.environ |= {"HOME": home, "XDG_CACHE_HOME": home, "XDG_CONFIG_HOME": home, "PYTRITON_HOME": home}
        http_port, grpc_port = _free_ports(2)
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
