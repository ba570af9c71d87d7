# pyright: basic
# Ray ships no complete types.
"""Runs each program as a Ray Serve deployment, on the Ray that this process is connected to.

Ray Serve is the control plane: it places, starts, checks, restarts and counts replicas. No request goes through it.
"""

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from dyorc.authoring.program import Program
from dyorc.config import DeploymentConfig, LinkConfig, TransportConfig
from dyorc.launcher.starting import start
from dyorc.replica.assignment import Source, Uplink
from dyorc.transport.network import Secrets


class ServeReplicas:
    """Asks Serve for replicas.

    Args:
        programs: Each program with the target that its replicas import, e.g. ``/app/flow.py:classify``.
        secrets: Keys by which replicas on several nodes recognize each other; None on one node.
    """

    def __init__(
        self,
        programs: Mapping[Program, str],
        deployment: DeploymentConfig,
        link: LinkConfig,
        transport: TransportConfig,
        secrets: Secrets | None = None,
    ) -> None:
        self._programs = programs
        self._deployment = deployment
        self._link = link
        self._transport = transport
        self._secrets = secrets

    async def deploy(self, address: str) -> None:
        """Asks Serve for all replicas. They dial in to `address` as they come up; this does not wait for them.

        Raises:
            LaunchError: If Serve refuses them twice. Asking again for what it has accepted changes nothing.
        """
        await start("the programs on Ray Serve", lambda: self._deploy(address), lambda: None)

    def _deploy(self, address: str) -> None:
        from ray import serve

        from dyorc.replica.deployment import ReplicaDeployment

        uplink = Uplink(address=address, link=self._link, transport=self._transport, secrets=self._secrets)
        targets = []
        for program, target in self._programs.items():
            options = program.options
            deployment = serve.deployment(ReplicaDeployment).options(
                name=program.name,
                num_replicas=_num_at_start(program),
                ray_actor_options=options.ray_actor_options,
                health_check_period_s=self._deployment.health_check_period_s,
                health_check_timeout_s=self._deployment.health_check_timeout_s,
                graceful_shutdown_wait_loop_s=0.2,
                graceful_shutdown_timeout_s=self._deployment.graceful_shutdown_timeout_s,
                logging_config={"log_level": "WARNING", "enable_access_log": False},
            )
            source = Source(folder=os.getcwd(), target=target, program=program.name)
            bound = deployment.bind(source, uplink, self._num_threads(program))
            targets.append(serve.RunTarget(bound, name=program.name, route_prefix=None))
        serve.run_many(targets, wait_for_ingress_deployment_creation=False, wait_for_applications_running=False)

    async def delete(self) -> None:
        """Ends all replicas, and waits until they have ended."""
        await asyncio.to_thread(self._delete)

    def _delete(self) -> None:
        from ray import serve

        for program in self._programs:
            serve.delete(program.name, _blocking=True)

    async def complaints(self) -> dict[str, str]:
        """Returns Serve's complaints about programs that it cannot run, by program."""
        return await asyncio.to_thread(self._complaints)

    def _complaints(self) -> dict[str, str]:
        from ray import serve

        found: dict[str, str] = {}
        for name, application in serve.status().applications.items():
            for deployment in application.deployments.values():
                if deployment.message and deployment.status.value in ("UNHEALTHY", "UPDATING", "DEPLOY_FAILED"):
                    found[name] = deployment.message.strip().splitlines()[0]
        return found

    @property
    def num_cpus_wanted(self) -> float:
        """CPUs that all replicas reserve together."""
        return sum(_num_cpus(program) * _num_at_start(program) for program in self._programs)

    def _num_threads(self, program: Program) -> int:
        """Returns a replica's threads: its CPU share of this machine, so that all replicas together do not oversubscribe it."""
        num_cores = os.cpu_count() or 1
        share = min(1.0, num_cores / max(self.num_cpus_wanted, 1e-9))
        return max(1, int(_num_cpus(program) * share))


def _num_at_start(program: Program) -> int:
    return max(program.options.bounds.num_at_start, 1)  # Serve takes no 0


def _num_cpus(program: Program) -> float:
    """Returns what Ray reserves for a replica: one CPU by default."""
    options: dict[str, Any] = program.options.ray_actor_options
    return float(options.get("num_cpus", 1))
