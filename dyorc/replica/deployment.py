# pyright: basic
# Ray ships no complete types.
"""The Ray Serve deployment that hosts one program. Runs in the replica's process; Serve starts, checks and restarts it."""

import os
import sys

import ray
from ray import serve

from dyorc.authoring.loading import load_program
from dyorc.replica.assignment import Identity, Source, Uplink
from dyorc.replica.worker import Worker


class ReplicaDeployment:
    """Serve's handle on a worker. Requests do not pass through it.

    Args:
        num_threads: Threads that the program should use.
    """

    def __init__(self, source: Source, uplink: Uplink, num_threads: int) -> None:
        os.environ["DYORC_NUM_THREADS"] = str(num_threads)
        sys.path.insert(0, source.folder)
        identity = Identity(
            replica_id=serve.get_replica_context().replica_id.unique_id,
            program=source.program,
            node=ray.get_runtime_context().get_node_id(),
            host="" if uplink.secrets is None else ray.util.get_node_ip_address(),
            num_cores=0 if ray.get_gpu_ids() else os.cpu_count() or 0,
        )
        self._worker = Worker(lambda: load_program(source.target, source.program), identity, uplink)
        self._worker.start()

    def check_health(self) -> None:
        """Raises if this replica should be replaced. Called by Serve."""
        self._worker.check()
