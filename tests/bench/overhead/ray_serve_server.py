# pyright: basic
# Ray ships no complete types.
"""Serves a benchmark's peer, an application of Ray Serve's, on a Ray of its own.

    python ray_serve_server.py APP.py [--mode default|throughput] [--port 0] [--num-cpus 4] [--object-store-bytes 100000000]
        [--probe-bytes 1024]

APP.py has a function `build_application()`; the replicas import it, so its folder is where it is looked for.

Prints its address, then a line that starts with "Ready" when it has answered a request. Stops on SIGTERM or SIGINT, with every
process it started, and leaves no file.
"""

from __future__ import annotations

import argparse
import http.client
import importlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.processes import adopt_orphans, end_children

_NUM_REPLICA_PORTS = 100
_READY_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 10.0


def main() -> None:
    """Runs the server as a child, in a session of its own, and cleans up behind it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["default", "throughput"], default="default")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("app", type=Path)
    parser.add_argument("--num-cpus", type=int, default=4, help="logical ones: as many as deployments, and one to spare")
    parser.add_argument("--object-store-bytes", type=int, default=100_000_000)
    parser.add_argument("--probe-bytes", type=int, default=4 * 256, help="length of a request that is answered")
    arguments = parser.parse_args()
    adopt_orphans()
    folder = Path(tempfile.mkdtemp(prefix="rs-"))  # short: Ray puts Unix sockets deep below it
    child = os.fork()
    if child == 0:
        # A Ctrl-C goes to the whole process group. It must not reach Ray's processes, which would end in no order and leave
        # HAProxy behind; the driver could not even clean up, as it ends at once when its raylet does.
        os.setsid()
        _serve(arguments, arguments.port or _find_free_ports(1)[0], folder)
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.kill(child, signal.SIGTERM))
    _, status = os.waitpid(child, 0)
    for command in end_children(_END_TIMEOUT_S):
        print(f"had to kill: {command}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    sys.exit(os.waitstatus_to_exitcode(status))


def _serve(arguments: argparse.Namespace, port: int, folder: Path) -> None:
    _exit_on_sigterm()
    try:
        _set_environment(arguments.mode, folder)
        _start(arguments, port, folder)
        _exit_on_sigterm()  # again, because Ray installs a handler of its own
        print(f"Listening on http://127.0.0.1:{port}", flush=True)
        _wait_until_ready(port, arguments.probe_bytes)
        print(f"Ready. Mode: {arguments.mode}", flush=True)
        while True:
            signal.pause()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _stop()


def _exit_on_sigterm() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def _set_environment(mode: str, folder: Path) -> None:
    """Ray and Ray Serve read these when they are imported, and pass them on to their processes."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if mode == "default":
        return
    os.environ["RAY_SERVE_THROUGHPUT_OPTIMIZED"] = "1"
    os.environ["RAY_SERVE_ENABLE_HA_PROXY"] = "1"
    # The rest is about two of these on one machine, and about a quick end; none of it lies on the path of a request.
    for name, file in (
        ("CONFIG_FILE_LOC", "haproxy.cfg"),
        ("SOCKET_PATH", "admin.sock"),
        ("METRICS_SOCKET_PATH", "metrics.sock"),
        ("SERVER_STATE_BASE", ""),
        ("SERVER_STATE_FILE", "server-state"),
    ):
        os.environ[f"RAY_SERVE_HAPROXY_{name}"] = str(folder / "haproxy" / file)
    single = ("HAPROXY_METRICS_PORT", "HAPROXY_STATS_PORT", "FALLBACK_PROXY_HTTP_PORT", "FALLBACK_PROXY_GRPC_PORT")
    *ports, http_base, grpc_base = _find_free_ports(len(single) + 2)
    for name, port in zip(single, ports, strict=True):
        os.environ[f"RAY_SERVE_{name}"] = str(port)
    for kind, base in (("HTTP", http_base), ("GRPC", grpc_base)):  # Serve tries one after the other
        os.environ[f"RAY_SERVE_DIRECT_INGRESS_MIN_{kind}_PORT"] = str(base)
        os.environ[f"RAY_SERVE_DIRECT_INGRESS_MAX_{kind}_PORT"] = str(min(base + _NUM_REPLICA_PORTS, 65535))
    os.environ["RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S"] = "0"


def _start(arguments: argparse.Namespace, port: int, folder: Path) -> None:
    beside = str(arguments.app.resolve().parent)
    sys.path.insert(0, beside)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (beside, os.environ.get("PYTHONPATH"))))  # for the replicas
    import ray
    from ray import serve
    from ray.serve.schema import LoggingConfig

    ray.init(
        address="local",
        num_cpus=arguments.num_cpus,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=arguments.object_store_bytes,
        _temp_dir=str(folder),
    )
    app = importlib.import_module(arguments.app.stem)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(app.build_application(), logging_config=LoggingConfig(enable_access_log=False))


def _wait_until_ready(port: int, probe_bytes: int) -> None:
    """HAProxy learns of the replicas a little after `serve.run` has returned."""
    give_up_at_s = time.monotonic() + _READY_TIMEOUT_S
    while not _answers(port, probe_bytes):
        if time.monotonic() > give_up_at_s:
            raise TimeoutError(f"no answer to a request in {_READY_TIMEOUT_S:.0f} s")
        time.sleep(0.1)


def _answers(port: int, probe_bytes: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_READY_TIMEOUT_S)
    try:
        connection.request("POST", "/", bytes(probe_bytes))
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


def _find_free_ports(num_ports: int) -> list[int]:
    sockets = [socket.socket() for _ in range(num_ports)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


if __name__ == "__main__":
    main()
