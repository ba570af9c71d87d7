"""The Ray Serve deployment of one program, or of a group. Serve starts, checks and restarts it; it keeps a process that runs it.

It imports neither torch nor the user's code, so it starts as soon as Serve does.
"""

import os
from dataclasses import replace

import ray

from dyorc.replica.assignment import (
    DEVICE_VARIABLES,
    ForkServerSpec,
    Hosting,
    Identity,
    ProgramSource,
    ReplicaAssignment,
    Uplink,
    new_replica_id,
)
from dyorc.replica.fork_client import ForkClient
from dyorc.replica.replica_monitor import ReplicaMonitor
from dyorc.system.processors import num_processors
from dyorc.telemetry import logs

ADDRESS = "RAY_ADDRESS"
"""The variable by which a replica's process finds Ray; missing if it was forked before Ray was up."""


def connect() -> None:
    """Connects a forked replica to Ray, once, for programs that use Ray: the process is not one of Ray's workers."""
    if ADDRESS in os.environ and not ray.is_initialized():
        ray.init(address=os.environ[ADDRESS], log_to_driver=False, configure_logging=False)
        logs.adopt_ray()


_NODE_CHARACTERS = 12


class ReplicaDeployment:
    """Serve's handle on a replica's process. Requests do not pass through it."""

    def __init__(
        self,
        source: ProgramSource,
        uplink: Uplink,
        hosting: Hosting,
        group: str = "",
        companions: tuple[ProgramSource, ...] = (),
    ) -> None:
        context = ray.get_runtime_context()
        devices = ray.get_gpu_ids()
        identity = Identity(
            replica_id=new_replica_id(source.name),
            program=source.name,
            node=context.get_node_id() if hosting.node is None else hosting.node,
            host="" if uplink.secrets is None else ray.util.get_node_ip_address(),
            num_cores=0 if devices else num_processors(),
            device=str(devices[0]) if len(devices) == 1 else "",
        )
        assignment = ReplicaAssignment(
            source=source, identity=identity, uplink=uplink, num_threads=hosting.num_threads, graceful_s=hosting.graceful_s,
            environment={**hosting.environment, **_devices(), ADDRESS: context.gcs_address}, group=group, companions=companions,
        )  # fmt: skip
        logs.set_up(uplink.logs, keeper_of=source.name)
        self._keeper = ReplicaMonitor(ForkClient(_place_on(context.get_node_id(), hosting)), assignment, hosting)
        self._keeper.start()

    def check_health(self) -> None:
        """Raises if this replica should be replaced. Called by Serve."""
        self._keeper.check()

    def __del__(self) -> None:
        """Ends the process. Called by Serve when it ends the replica; if Serve kills the replica, the process ends, too."""
        self._keeper.stop()


def _place_on(node: str, hosting: Hosting) -> ForkServerSpec:
    """Returns where this node's fork server is. Nodes may share a folder for temporary files."""
    place = hosting.place
    return place if hosting.node is not None else replace(place, folder=f"{place.folder}-{node[:_NODE_CHARACTERS]}")


def _devices() -> dict[str, str]:
    """Returns the variables in which Ray names the devices of this replica."""
    return {name: value for name, value in os.environ.items() if name.endswith(DEVICE_VARIABLES)}
