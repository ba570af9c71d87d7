# pyright: basic
# Ray ships no complete types.
"""Starts a Ray of our own on this machine and keeps replicas on it."""

import asyncio
import contextlib
import fcntl
import logging
import math
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from dyorc.authoring.program import Program
from dyorc.config import DeploymentConfig, LinkConfig, TransportConfig
from dyorc.launcher.processes import end_children_with, end_ray_process
from dyorc.launcher.serve_replicas import ServeReplicas
from dyorc.launcher.starting import start
from dyorc.transport.arena_file import sweep

_FOLDER_PREFIX = "dyorc-"


class LocalRay:
    """A Ray of our own on this machine, running while entered. Leaves no process, file or shared memory behind.

    Args:
        programs: Each program with the target that its replicas import, e.g. ``/app/flow.py:classify``.
    """

    def __init__(
        self, programs: Mapping[Program, str], deployment: DeploymentConfig, link: LinkConfig, transport: TransportConfig
    ) -> None:
        self._deployment = deployment
        self._transport = transport
        self.network = None
        self.replicas = ServeReplicas(programs, deployment, link, transport)
        self._folder = ""
        self._lock: int | None = None
        self._environment: list[str] = []

    async def __aenter__(self) -> Self:
        _remove_orphans()
        self._folder = tempfile.mkdtemp(prefix=_FOLDER_PREFIX)
        self._lock = _lock(self._folder)
        try:
            self._set_environment()  # once: this process keeps the first token that Ray reads
            await start("Ray", self._start, self._take_back)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.to_thread(self._stop)
        sweep(self._transport.arena_folder)  # arenas of replicas that Ray killed
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)

    @property
    def link_address(self) -> str:
        """Where the orchestrator should listen: a socket in a folder that only this user can enter."""
        return f"unix://{self._folder}/link"

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
            _temp_dir=f"{self._folder}/ray",  # anybody may write to Ray's folder; the one around it stays ours
        )
        serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING"})

    def _set_environment(self) -> None:
        """Sets what Ray and its processes read from the environment; the user's own settings are kept."""
        token = os.path.join(self._folder, "token")
        with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        for name, value in (
            ("RAY_USAGE_STATS_ENABLED", "0"),
            # Ray's own default, 15, puts replicas behind everything else on the machine.
            ("RAY_worker_niceness", "0"),
            # At ten times per second, Serve's controller uses a tenth of a core to find that nothing has changed.
            ("RAY_SERVE_CONTROL_LOOP_INTERVAL_S", "0.5"),
            # Without a path of our own, Ray leaves its token in the user's home.
            ("RAY_AUTH_MODE", "token"),
            ("RAY_AUTH_TOKEN_PATH", token),
        ):
            if name not in os.environ:
                os.environ[name] = value
                self._environment.append(name)

    def _take_back(self) -> None:
        """Removes what a failed attempt to start Ray has left: if Ray itself gave up, it ended nothing it had started."""
        self._shut_down()
        end_children_with(self._folder)

    def _shut_down(self) -> None:
        import ray

        # This Ray is ours alone: ending it also ends Serve and the replicas, faster than Serve's own shutdown.
        if ray.is_initialized():
            ray.shutdown()

    def _stop(self) -> None:
        self._shut_down()
        for name in self._environment:
            del os.environ[name]
        self._environment.clear()

    def end_replica(self, pid: int) -> None:
        """Kills a replica's process, if it still runs; Serve notices at its next check and starts another."""
        end_ray_process(pid)


def _lock(folder: str) -> int:
    """Marks a folder as owned for as long as this process lives; returns the lock's descriptor."""
    path = os.path.join(folder, "lock")
    descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.rename(f"{path}.new", path)  # from here on others may check whether it is locked
    return descriptor


def _remove_orphans() -> None:
    """Removes the folders of servers that were killed before they could do so."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):  # it is locked, belongs to somebody else, or has just gone
            descriptor = os.open(folder / "lock", os.O_WRONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(descriptor)
