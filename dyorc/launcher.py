# pyright: basic
# Ray ships no complete types.
"""Starts a local Ray and keeps every program on it as a Ray Serve deployment of its own.

Ray Serve is the control plane: it places, starts, checks, restarts and counts replicas. No request goes through it.
"""

import asyncio
import contextlib
import fcntl
import logging
import math
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dyorc.authoring.program import Program
from dyorc.config import DeploymentConfig, LinkConfig

_FOLDER_PREFIX = "dyorc-"


class LocalRay:
    """A Ray of our own on this machine, while it is entered. Leaves no process, file or shared memory behind.

    Args:
        programs: Each program with the target that its replicas import, e.g. ``/app/flow.py:classify``.
    """

    def __init__(self, programs: Mapping[Program, str], deployment: DeploymentConfig, link: LinkConfig) -> None:
        self._programs = programs
        self._deployment = deployment
        self._link = link
        self._folder = ""
        self._lock: int | None = None
        self._environment: list[str] = []

    async def __aenter__(self) -> Self:
        _remove_orphans()
        self._folder = tempfile.mkdtemp(prefix=_FOLDER_PREFIX)
        self._lock = _lock(self._folder)
        try:
            await asyncio.to_thread(self._start)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.to_thread(self._stop)
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)

    @property
    def link_address(self) -> str:
        """Where the orchestrator should listen: a socket in a folder that only this user can enter."""
        return f"ipc://{self._folder}/link"

    @property
    def node(self) -> str:
        """Name of this machine, as its replicas know it."""
        import ray

        return ray.get_runtime_context().get_node_id()

    def _start(self) -> None:
        self._set_environment()
        import ray
        from ray import serve

        for name in ("ray", "ray.serve"):
            logging.getLogger(name).setLevel(logging.ERROR)
        ray.init(
            address="local",
            num_cpus=max(os.cpu_count() or 1, math.ceil(self._num_cpus_wanted())),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=self._deployment.object_store_bytes,
            _temp_dir=f"{self._folder}/ray",  # Ray lets everybody write to its folder; the one around it stays ours
        )
        serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING"})

    def _set_environment(self) -> None:
        """What Ray and its processes read from the environment; a user's own settings stay as they are."""
        token = os.path.join(self._folder, "token")
        with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        for name, value in (
            ("RAY_USAGE_STATS_ENABLED", "0"),
            # Ray's own default, 15, puts replicas behind everything else on the machine.
            ("RAY_worker_niceness", "0"),
            # Without a path of our own, Ray leaves its token in the user's home.
            ("RAY_AUTH_MODE", "token"),
            ("RAY_AUTH_TOKEN_PATH", token),
        ):
            if name not in os.environ:
                os.environ[name] = value
                self._environment.append(name)

    def _stop(self) -> None:
        import ray

        # This Ray is ours alone: its end takes Serve and the replicas along, sooner than Serve's own shutdown would.
        if ray.is_initialized():
            ray.shutdown()
        for name in self._environment:
            del os.environ[name]
        self._environment.clear()

    def end_replica(self, pid: int) -> None:
        """Kills a replica's process, if it is there; Serve notices at its next check and starts another.

        Serve's own checks would find out about a stopped process, too, but only after several timeouts.
        """
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):  # not another process that got the number
                os.kill(pid, signal.SIGKILL)

    async def deploy(self, address: str) -> None:
        """Asks Serve for all replicas. They dial in to `address` as they come up; this does not wait for them."""
        await asyncio.to_thread(self._deploy, address)

    def _deploy(self, address: str) -> None:
        from ray import serve

        from dyorc.replica.deployment import ReplicaDeployment

        targets = []
        for program, target in self._programs.items():
            options = program.options
            deployment = serve.deployment(ReplicaDeployment).options(
                name=program.name,
                num_replicas=options.num_replicas,
                ray_actor_options=options.ray_actor_options,
                health_check_period_s=self._deployment.health_check_period_s,
                health_check_timeout_s=self._deployment.health_check_timeout_s,
                graceful_shutdown_wait_loop_s=0.2,
                graceful_shutdown_timeout_s=self._deployment.graceful_shutdown_timeout_s,
                logging_config={"log_level": "WARNING", "enable_access_log": False},
            )
            bound = deployment.bind(target, program.name, address, self._num_threads(program), os.getcwd(), self._link)
            targets.append(serve.RunTarget(bound, name=program.name, route_prefix=None))
        serve.run_many(targets, wait_for_ingress_deployment_creation=False, wait_for_applications_running=False)

    async def complaints(self) -> dict[str, str]:
        """What Serve says of programs that it cannot get to run, by program."""
        return await asyncio.to_thread(self._complaints)

    def _complaints(self) -> dict[str, str]:
        from ray import serve

        found: dict[str, str] = {}
        for name, application in serve.status().applications.items():
            for deployment in application.deployments.values():
                if deployment.message and deployment.status.value in ("UNHEALTHY", "UPDATING", "DEPLOY_FAILED"):
                    found[name] = deployment.message.strip().splitlines()[0]
        return found

    def _num_cpus_wanted(self) -> float:
        return sum(_num_cpus(program) * program.options.num_replicas for program in self._programs)

    def _num_threads(self, program: Program) -> int:
        """Threads for a replica: its CPU share of this machine, so that all replicas together do not oversubscribe it."""
        num_cores = os.cpu_count() or 1
        share = min(1.0, num_cores / max(self._num_cpus_wanted(), 1e-9))
        return max(1, int(_num_cpus(program) * share))


def _lock(folder: str) -> int:
    """Marks a folder as owned for as long as this process lives; gives the lock's descriptor."""
    path = os.path.join(folder, "lock")
    descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.rename(f"{path}.new", path)  # from here on others may look whether it is held
    return descriptor


def _remove_orphans() -> None:
    """Removes the folders of servers that were killed before they could do it themselves."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):  # it is held, it is somebody else's, or it has just gone
            descriptor = os.open(folder / "lock", os.O_WRONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(descriptor)


def _num_cpus(program: Program) -> float:
    """What Ray reserves for a replica; it takes one CPU where none is named."""
    options: dict[str, Any] = program.options.ray_actor_options
    return float(options.get("num_cpus", 1))
