# pyright: basic
# Ray ships no complete types.
"""Serves a workload by Ray Serve, on a Ray of its own.

    python benchmarks/peers/ray_serve/server.py --workload NAME [--mode default|throughput|work_conserving] [--port 0]

`throughput` is Ray Serve with `RAY_SERVE_THROUGHPUT_OPTIMIZED` and HAProxy. `work_conserving` is the same, but programs that
become free form a batch of everything that waits (`WorkConservingBatcher`); this shows the effect of good batching alone. The
server stops on SIGTERM or SIGINT, with every process it started, and leaves no files.

The following was tried, on two shared processors (with `guarded`, programs of 9 and 15 ms, and 32 clients unless stated):

* `batch_wait_timeout_s` 0, 2, 5, 10 ms, with the program on its event loop. In the default mode (where 2 ms was not tried) no
  wait beat 0 beyond the noise: batches form while the program runs, up to 9 on average. In the throughput mode, where one event
      loop both takes requests in and runs programs, they did not: batches of 1.2, 2, 4 and 6.5 for the four waits; but 10 ms
          costs one client
  23 ms. With programs on an event loop of their own, as in the default mode, 0 ms gives batches of 7 at no cost to one client.
* `@serve.batch` with the program on a thread: batches of 1 to 2, about a third fewer answers than on an event loop.
* `WorkConservingBatcher` on a thread: batches of 5 to 8. On the throughput mode's only event loop: of 1, a third of the answers.
* `pickle` between the deployments against `cloudpickle` (throughput mode, `cascade`): no difference beyond the noise.
* The default mode's transport against the throughput mode's (`cascade`, one client): 22 ms against 3. So `work_conserving`
  has the latter.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks import wire
from benchmarks.peers.ray_serve.process import serve_in_child
from benchmarks.workloads import workload
from benchmarks.workloads.base import probes

CANNOT: dict[str, str] = {}
"""Workloads that Ray Serve cannot serve, and why. There are none."""

_OBJECT_STORE_BYTES = 512 * 2**20
"""Memory for the chain's tensors; only what is used is really taken."""
_NUM_PROBES = 8


@dataclass(frozen=True, kw_only=True)
class Mode:
    """How Ray Serve is set up.

    Attributes:
        has_haproxy: Whether to use the throughput mode, with HAProxy in front, instead of Ray Serve's own proxy.
        has_own_batcher: Whether programs batch with `WorkConservingBatcher` instead of `@serve.batch`.
    """

    has_haproxy: bool
    has_own_batcher: bool


MODES = {
    "default": Mode(has_haproxy=False, has_own_batcher=False),
    "throughput": Mode(has_haproxy=True, has_own_batcher=False),
    "work_conserving": Mode(has_haproxy=True, has_own_batcher=True),
}


def main() -> None:
    """Serves until a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", required=True)
    parser.add_argument("--mode", choices=MODES, default="default")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    arguments = parser.parse_args()
    mode = MODES[arguments.mode]
    served = workload(arguments.workload)
    num_deployed = sum(served.replicas.get(program, 1) for program in served.programs)
    serve_in_child(
        partial(_build, served.name, mode),
        (wire.pack(inputs) for inputs in probes(served, _NUM_PROBES)),
        path="/infer",
        has_haproxy=mode.has_haproxy,
        port=arguments.port,
        num_cpus=num_deployed + 3,  # the ingress, and some to spare
        object_store_bytes=_OBJECT_STORE_BYTES,
    )


def _build(name: str, mode: Mode) -> Any:
    from benchmarks.peers.ray_serve.app import build_application

    return build_application(name, has_own_batcher=mode.has_own_batcher)


if __name__ == "__main__":
    main()
