# pyright: basic
# Ray ships no complete types.
"""Starts a Ray of our own on this machine and keeps replicas on it."""

import asyncio
import logging
import math
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from dyorc.authoring.program import Program
from dyorc.config import DeploymentConfig, LinkConfig, TransportConfig
from dyorc.launcher.processes import end_children_with, end_ray_process
from dyorc.launcher.ray_home import RayHome
from dyorc.launcher.serve_replicas import ServeReplicas
from dyorc.launcher.starting import start
from dyorc.transport.arena_file import sweep


class LocalRay:
    """A Ray of our own on this machine, running while entered. Leaves no process, file or shared memory behind.

    Args:
        home: Where Ray keeps its files; entered before anything imported Ray, and left after this.
        programs: Each program with the target that its replicas import, e.g. ``/app/flow.py:classify``.
    """

    def __init__(
        self,
        home: RayHome,
        programs: Mapping[Program, str],
        deployment: DeploymentConfig,
        link: LinkConfig,
        transport: TransportConfig,
    ) -> None:
        self._home = home
        self._deployment = deployment
        self._transport = transport
        self.network = None
        self.replicas = ServeReplicas(programs, deployment, link, transport)

    async def __aenter__(self) -> Self:
        try:
            await start("Ray", self._start, self._take_back)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.to_thread(self._shut_down)
        sweep(self._transport.arena_folder)  # arenas of replicas that Ray killed

    @property
    def link_address(self) -> str:
        """Where the orchestrator should listen: a socket in a folder that only this user can enter."""
        return f"unix://{self._home.folder}/link"

    @property
    def node(self) -> str:
        """Name of this machine, as its replicas know it."""
        import ray

        return ray.get_runtime_context().get_node_id()

    def _start(self) -> None:
        import ray
        from ray import serve

        for name in ("ray", "ray.serve"):
            logging.getLogger(name).setLevel(logging.ERROR)
        ray.init(
            address="local",
            num_cpus=max(os.cpu_count() or 1, math.ceil(self.replicas.num_cpus_wanted)),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=self._deployment.object_store_bytes,
            _temp_dir=f"{self._home.folder}/ray",  # any user may write to Ray's folder; the one around it stays ours
        )
        serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING"})

    def _take_back(self) -> None:
        """Removes what a failed attempt to start Ray has left: if Ray itself gave up, it ended nothing it had started."""
        self._shut_down()
        end_children_with(self._home.folder)

    def _shut_down(self) -> None:
        import ray

        # This Ray is ours alone: ending it also ends Serve and the replicas, faster than Serve's own shutdown.
        if ray.is_initialized():
            ray.shutdown()

    def end_replica(self, pid: int) -> None:
        """Kills a replica's process, if it still runs; Serve notices at its next check and starts another."""
        end_ray_process(pid)
