# pyright: basic
# Ray ships no complete types.
"""Serves the chain benchmark's peer, the deployments of `ray_chain_app.py`, on a Ray of its own.

    python ray_serve_chain.py [--mode default|throughput] [--port 0]

Prints its address, then a line that starts with "Ready" when it has answered a request. Stops on SIGTERM or SIGINT, with every
process it started, and leaves no file. How Ray Serve's two modes are set and how it is stopped is the overhead benchmark's.
"""

from __future__ import annotations

import argparse
import http.client
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "overhead"))
sys.path.insert(1, str(Path(__file__).resolve().parents[3]))

from tests.bench.overhead import ray_serve_cascade as cascade
from tests.bench.overhead.overhead_processes import adopt_orphans, end_children

_NUM_CPUS = 5  # logical: as many as there are deployments, and one to spare, however many cores there are
_OBJECT_STORE_BYTES = 512 * 2**20
_READY_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 10.0


def main() -> None:
    """Runs the server as a child, in a session of its own, and cleans up behind it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["default", "throughput"], default="default")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    arguments = parser.parse_args()
    adopt_orphans()
    folder = Path(tempfile.mkdtemp(prefix="rs-"))  # short: Ray puts Unix sockets deep below it
    child = os.fork()
    if child == 0:
        os.setsid()  # a Ctrl-C must not reach Ray's processes, which would end in no order
        _serve(arguments.mode, arguments.port or cascade._find_free_ports(1)[0], folder)
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.kill(child, signal.SIGTERM))
    _, status = os.waitpid(child, 0)
    for command in end_children(_END_TIMEOUT_S):
        print(f"had to kill: {command}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    sys.exit(os.waitstatus_to_exitcode(status))


def _serve(mode: str, port: int, folder: Path) -> None:
    cascade._exit_on_sigterm()
    try:
        cascade._set_environment(mode, folder)
        _start(port, folder)
        cascade._exit_on_sigterm()  # again, because Ray installs a handler of its own
        print(f"Listening on http://127.0.0.1:{port}", flush=True)
        _wait_until_ready(port)
        print(f"Ready. Mode: {mode}", flush=True)
        while True:
            signal.pause()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        cascade._stop()


def _start(port: int, folder: Path) -> None:
    import ray
    from ray import serve
    from ray.serve.schema import LoggingConfig

    ray.init(
        address="local",
        num_cpus=_NUM_CPUS,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        _temp_dir=str(folder),
    )
    from ray_chain_app import build_application

    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(build_application(), logging_config=LoggingConfig(enable_access_log=False))


def _wait_until_ready(port: int) -> None:
    """HAProxy learns of the replicas a little after `serve.run` has returned."""
    give_up_at_s = time.monotonic() + _READY_TIMEOUT_S
    while not _answers(port):
        if time.monotonic() > give_up_at_s:
            raise TimeoutError(f"no answer to a request in {_READY_TIMEOUT_S:.0f} s")
        time.sleep(0.1)


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_READY_TIMEOUT_S)
    try:
        connection.request("POST", "/", bytes(4))
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    main()
