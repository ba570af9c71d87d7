# pyright: basic
# Ray ships no complete types.
"""Starts our own Ray on this machine and keeps replicas on it."""

import asyncio
import math
from collections.abc import Mapping
from typing import Self

import structlog

from dyorc.authoring.program import Program
from dyorc.config import Settings
from dyorc.ray_serve.forked_replicas import ForkedReplicas
from dyorc.ray_serve.ray_connection import start_with_retry
from dyorc.ray_serve.ray_home import HeadStart
from dyorc.ray_serve.replica_processes import end_children_with, end_replica_process
from dyorc.ray_serve.replica_specs import ReplicaSpecs, libraries_of_plans
from dyorc.ray_serve.serve_replicas import ServeReplicas
from dyorc.ray_serve.user_imports import UserImports
from dyorc.replica.assignment import ProgramSource, Uplink
from dyorc.system.processors import num_processors
from dyorc.telemetry import logs
from dyorc.telemetry.tracing.destination import Destination
from dyorc.transport.arena_file import sweep
from dyorc.transport.cluster_network import LOCAL_NODE

_log = structlog.get_logger("dyorc.launcher")

_ATTEMPTS = 4
"""Starts of Ray, whose own limits a busy machine exceeds. Replicas that were forked ahead answer meanwhile: no reason to end."""
_VERSIONS_AT_ONCE = 3
"""There is room for this many versions of each program: Ray's processors only count here, and reserve nothing."""


class LocalRay:
    """Our own Ray on this machine, while entered. Leaves no process, file or shared memory behind.

    Args:
        start: Entered before Ray was imported, and left after this.
        imports: What the user's modules import.
        programs: Each program with the place where its replicas find it.
        spans: Where spans of the programs' code go; None if nothing is traced.
    """

    def __init__(
        self,
        start: HeadStart,
        imports: UserImports,
        programs: Mapping[Program, ProgramSource],
        settings: Settings,
        spans: Destination | None = None,
    ) -> None:
        deployment = settings.deployment
        self._home = start.home
        start.preload((*imports.libraries, *libraries_of_plans(programs)))
        self._deployment = deployment
        self._arena_folder = settings.transport.arena_folder
        self.network = None
        self._plans = ReplicaSpecs(programs, deployment, start.place, LOCAL_NODE, settings.link.kill_after_s)
        self._forked = ForkedReplicas(start.forks, self._plans, deployment.graceful_shutdown_timeout_s)
        uplink = Uplink(
            address=self.link_address, link=settings.link, transport=settings.transport, logs=settings.telemetry.logs, spans=spans
        )
        self.replicas = ServeReplicas(self._plans, deployment, uplink, None if imports.has_ray else self._forked)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.replicas.stop_asking()
        try:
            await asyncio.to_thread(self._shut_down)
        finally:
            await self._forked.close()
            sweep(self._arena_folder)  # arenas of replicas that were killed

    async def deploy(self, address: str) -> None:
        """Starts all replicas, then Ray, and hands the replicas over to Serve. They dial in to `address` as they come up.

        Raises:
            LaunchError: If Ray cannot be started, or Serve refuses the replicas.
        """
        await self.replicas.prepare_all(address)
        # Two steps: if the server stops meanwhile, it waits for one of them only.
        await start_with_retry("Ray", self._start, self._take_back, _ATTEMPTS)
        await start_with_retry("Ray Serve", self._start_serve, lambda: None)
        await self.replicas.deploy()
        _log.info("replicas_handed_over", programs=len(self._plans.programs))

    @property
    def link_address(self) -> str:
        """Where the orchestrator should listen: a socket in a folder that only this user can enter."""
        return f"unix://{self._home.folder}/link"

    @property
    def node(self) -> str:
        """The name of this machine, as its replicas know it."""
        return LOCAL_NODE

    def _start(self) -> None:
        import ray

        logs.adopt_ray()
        ray.init(
            address="local",
            num_cpus=max(num_processors(), math.ceil(_VERSIONS_AT_ONCE * self._plans.num_cpus_at_most)),
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            object_store_memory=self._deployment.object_store_bytes,
            _temp_dir=f"{self._home.folder}/ray",  # any user may write to Ray's folder; the folder around it stays ours
        )

    def _start_serve(self) -> None:
        from ray import serve

        logs.adopt_ray()  # again: importing Serve has changed it
        serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING"})

    def _take_back(self) -> None:
        """Removes what a failed attempt to start Ray has left: Ray itself then ends nothing that it has started."""
        self._shut_down()
        end_children_with(self._home.folder)

    def _shut_down(self) -> None:
        import ray

        # This Ray is ours alone: ending it also ends Serve and the replicas, faster than Serve's own shutdown.
        if ray.is_initialized():
            ray.shutdown()

    def end_replica(self, pid: int) -> None:
        """Kills a replica's process, if it still runs; its Serve replica forks another."""
        end_replica_process(pid)
