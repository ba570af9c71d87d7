# pyright: basic
# Ray ships no complete types.
"""Ray Serve on a Ray of its own, which ends with every process that it started and leaves no files."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.peers.ray_serve.environment import find_free_ports, set_environment
from benchmarks.processes import adopt_orphans, end_children

_READY_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 10.0


def serve_in_child(
    build: Callable[[], Any],
    probes: Iterable[bytes],
    *,
    path: str,
    has_haproxy: bool,
    port: int = 0,
    num_cpus: int,
    object_store_bytes: int,
) -> None:
    """Runs an application as a child, in its own session, until SIGTERM or SIGINT, and cleans up after it.

    Prints its address, then "Ready" when it has answered each of the probes.

    Args:
        build: Makes the application; called where Ray may be imported.
        probes: Bodies of requests.
        path: The path for requests.
        port: The port; 0 stands for any free one.
        num_cpus: Logical CPUs: one per deployment, and some to spare.
    """
    adopt_orphans()
    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))  # short: Ray puts Unix sockets deep below it
    child = os.fork()
    if child == 0:
        # A Ctrl-C goes to the whole process group. It must not reach Ray's processes, which would end in random order and leave
        # HAProxy behind. The driver could not even clean up, since it ends at once when its raylet does.
        os.setsid()
        port = port or find_free_ports(1)[0]
        _exit_on_sigterm()
        try:
            set_environment(has_haproxy, folder)
            _start(build, port, folder, num_cpus, object_store_bytes)
            _exit_on_sigterm()  # again, because Ray installs its own handler
            print(f"Listening on http://127.0.0.1:{port}", flush=True)
            _wait_until_ready(port, path, probes)
            print("Ready", flush=True)
            while True:
                signal.pause()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            _stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.kill(child, signal.SIGTERM))
    _, status = os.waitpid(child, 0)
    for command in end_children(_END_TIMEOUT_S):
        print(f"had to kill: {command}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    sys.exit(os.waitstatus_to_exitcode(status))


def _exit_on_sigterm() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def _start(build: Callable[[], Any], port: int, folder: Path, num_cpus: int, object_store_bytes: int) -> None:
    import ray
    from ray import serve
    from ray.serve.schema import LoggingConfig

    ray.init(
        address="local",
        num_cpus=num_cpus,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=object_store_bytes,
        _temp_dir=str(folder),
    )
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(build(), logging_config=LoggingConfig(enable_access_log=False))


def _wait_until_ready(port: int, path: str, probes: Iterable[bytes]) -> None:
    """Waits for answers, since HAProxy learns of the replicas a little after `serve.run` has returned."""
    give_up_at_s = time.monotonic() + _READY_TIMEOUT_S
    for body in probes:
        while not _is_answered(port, path, body):
            if time.monotonic() > give_up_at_s:
                raise TimeoutError(f"no answer to a request in {_READY_TIMEOUT_S:.0f} s")
            time.sleep(0.1)


def _is_answered(port: int, path: str, body: bytes) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_READY_TIMEOUT_S)
    try:
        connection.request("POST", path, body)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _stop() -> None:
    if "ray" not in sys.modules:
        return
    import ray
    from ray import serve

    if ray.is_initialized():
        serve.shutdown()  # first, because it ends HAProxy, which Ray itself does not know
        ray.shutdown()
