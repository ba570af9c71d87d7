# pyright: basic
# Ray ships no complete types.
"""The Ray Serve deployment that hosts one program. Runs in the replica's process; Serve starts, checks and restarts it."""

import os
import sys

import ray
from ray import serve

from dyorc.authoring.loading import load_program
from dyorc.config import LinkConfig, TransportConfig
from dyorc.replica.worker import Worker
from dyorc.transport.network import Network, Secrets


class ReplicaDeployment:
    """Serve's handle on a worker. Requests do not pass through it.

    Args:
        target: Where the program is found, e.g. ``/app/flow.py:classify``.
        program_name: Which of the target's programs to host.
        address: The orchestrator's link.
        num_threads: Threads that the program should use.
        folder: Working directory of the server, in which modules are found.
        link: Settings of the link.
        transport: Settings of the tensor path.
        secrets: Keys by which the processes of several nodes recognize each other; None on one node.
    """

    def __init__(
        self,
        target: str,
        program_name: str,
        address: str,
        num_threads: int,
        folder: str,
        link: LinkConfig,
        transport: TransportConfig,
        secrets: Secrets | None,
    ) -> None:
        os.environ["DYORC_NUM_THREADS"] = str(num_threads)
        sys.path.insert(0, folder)
        self._worker = Worker(
            find=lambda: load_program(target, program_name),
            name=program_name,
            address=address,
            replica_id=serve.get_replica_context().replica_id.unique_id,
            node=ray.get_runtime_context().get_node_id(),
            link=link,
            transport=transport,
            network=None if secrets is None else Network(host=ray.util.get_node_ip_address(), secrets=secrets),
            num_cores=0 if ray.get_gpu_ids() else os.cpu_count() or 0,
        )
        self._worker.start()

    def check_health(self) -> None:
        """Raises if this replica should be replaced. Called by Serve."""
        self._worker.check()
