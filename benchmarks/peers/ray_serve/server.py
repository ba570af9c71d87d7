# pyright: basic
# Ray ships no complete types.
"""Serves a workload by Ray Serve, on a Ray of its own.

    python benchmarks/peers/ray_serve/server.py --workload NAME [--mode default|throughput|work_conserving] [--port 0]

`throughput` is Ray Serve with `RAY_SERVE_THROUGHPUT_OPTIMIZED` and HAProxy. `work_conserving` is the same, with programs that
form a batch when they become free, from all that waits (`WorkConservingBatcher`): so that what good batching gives is known by
itself. Stops on SIGTERM or SIGINT, with every process it started, and leaves no file.

What was tried, on two processors that others used too, more or less (`guarded`: programs of 9 and 15 ms; 32 clients unless said):

* `batch_wait_timeout_s` 0, 2, 5, 10 ms, with the program on its event loop. In the default mode (without 2 ms) no wait beat 0
  beyond the noise: batches form while the program runs, up to 9 on average. In the throughput mode, where one event loop both
  takes requests in and runs programs, they did not: batches of 1.2, 2, 4 and 6.5 for the four waits; but 10 ms costs one client
  23 ms. With programs on an event loop of their own, as in the default mode, 0 ms gives batches of 7 at no cost to one client.
* `@serve.batch` with the program on a thread: batches of 1 to 2, about a third fewer answers than on an event loop.
* `WorkConservingBatcher` on a thread: batches of 5 to 8. On the throughput mode's only event loop: of 1, a third of the answers.
* `pickle` between the deployments against `cloudpickle` (throughput mode, `cascade`): no difference beyond the noise.
* The default mode's transport against the throughput mode's (`cascade`, one client): 22 ms against 3. So `work_conserving`
  has the latter.
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
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.ray_serve.environment import find_free_ports, set_environment
from benchmarks.processes import adopt_orphans, end_children

CANNOT: dict[str, str] = {}
"""Workloads that Ray Serve cannot serve, and why: none."""

_OBJECT_STORE_BYTES = 512 * 2**20
"""For the chain's tensors; taken only as far as they are used."""
_NUM_PROBES = 8
_READY_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Mode:
    """How Ray Serve is set up.

    Attributes:
        has_haproxy: Its throughput mode, HAProxy in front; otherwise its own proxy.
        has_own_batcher: Programs batch by `WorkConservingBatcher`, not by `@serve.batch`.
    """

    has_haproxy: bool
    has_own_batcher: bool


MODES = {
    "default": Mode(has_haproxy=False, has_own_batcher=False),
    "throughput": Mode(has_haproxy=True, has_own_batcher=False),
    "work_conserving": Mode(has_haproxy=True, has_own_batcher=True),
}


def main() -> None:
    """Runs the server as a child, in a session of its own, and cleans up behind it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", required=True)
    parser.add_argument("--mode", choices=MODES, default="default")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    arguments = parser.parse_args()
    adopt_orphans()
    folder = Path(tempfile.mkdtemp(prefix="rs-"))  # short: Ray puts Unix sockets deep below it
    child = os.fork()
    if child == 0:
        # A Ctrl-C goes to the whole process group. It must not reach Ray's processes, which would end in no order and leave
        # HAProxy behind; the driver could not even clean up, as it ends at once when its raylet does.
        os.setsid()
        _serve(arguments.workload, MODES[arguments.mode], arguments.port or find_free_ports(1)[0], folder)
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.kill(child, signal.SIGTERM))
    _, status = os.waitpid(child, 0)
    for command in end_children(_END_TIMEOUT_S):
        print(f"had to kill: {command}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    sys.exit(os.waitstatus_to_exitcode(status))


def _serve(name: str, mode: Mode, port: int, folder: Path) -> None:
    _exit_on_sigterm()
    try:
        set_environment(mode.has_haproxy, folder)
        _start(name, mode, port, folder)
        _exit_on_sigterm()  # again, because Ray installs a handler of its own
        print(f"Listening on http://127.0.0.1:{port}", flush=True)
        _warm_up(name, port)
        print("Ready", flush=True)
        while True:
            signal.pause()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _stop()


def _exit_on_sigterm() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def _start(name: str, mode: Mode, port: int, folder: Path) -> None:
    import ray
    from ray import serve
    from ray.serve.schema import LoggingConfig

    from benchmarks.peers.ray_serve.app import build_application
    from benchmarks.workloads import workload

    programs = workload(name).programs
    num_deployed = sum(workload(name).replicas.get(program, 1) for program in programs)
    ray.init(
        address="local",
        num_cpus=num_deployed + 3,  # logical ones: the ingress, and some to spare
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        _temp_dir=str(folder),
    )
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    application = build_application(name, has_own_batcher=mode.has_own_batcher)
    serve.run(application, logging_config=LoggingConfig(enable_access_log=False))


def _warm_up(name: str, port: int) -> None:
    """Until a few requests are answered: HAProxy learns of the replicas a little after `serve.run` has returned."""
    from benchmarks import wire
    from benchmarks.workloads import workload

    give_up_at_s = time.monotonic() + _READY_TIMEOUT_S
    for inputs in workload(name).draw(_NUM_PROBES, 0):
        body = wire.pack(inputs)
        while not _is_answered(port, body):
            if time.monotonic() > give_up_at_s:
                raise TimeoutError(f"no answer to a request in {_READY_TIMEOUT_S:.0f} s")
            time.sleep(0.1)


def _is_answered(port: int, body: bytes) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_READY_TIMEOUT_S)
    try:
        connection.request("POST", "/infer", body)
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


if __name__ == "__main__":
    main()
