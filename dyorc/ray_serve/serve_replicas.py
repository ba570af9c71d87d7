# pyright: basic
# Ray ships no complete types.
"""Runs each program as a Ray Serve deployment, on the Ray that this process is connected to.

Ray Serve is the control plane: it places, starts, checks, restarts and counts replicas. Requests do not pass through it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import structlog

from dyorc.authoring.program import Program
from dyorc.config import DeploymentConfig
from dyorc.errors import text_of
from dyorc.ray_serve.forked_replicas import ForkedReplicas
from dyorc.ray_serve.persistent_applications import PersistentApplications
from dyorc.ray_serve.ray_connection import start_with_retry
from dyorc.ray_serve.replica_specs import ReplicaSpecs, check_plan, num_at_start
from dyorc.ray_serve.serve_scaling import ServeScaling
from dyorc.replica.assignment import ProgramSource, Uplink

_log = structlog.get_logger("dyorc.launcher")

Answer = TypeVar("Answer")
_RELEASE_S = 20.0
"""How often to look for processes that no Serve replica adopts."""


class ServeReplicas:
    """The replicas that Serve runs for this process.

    Args:
        uplink: How replicas reach this process; its address is known when they are deployed.
        ahead: Forks processes before Serve needs them; None if only Serve knows where they will be.
        lasting: For replicas that outlive this process, and may be there before it; None: they end with it.
    """

    def __init__(
        self,
        plans: ReplicaSpecs,
        config: DeploymentConfig,
        uplink: Uplink,
        ahead: ForkedReplicas | None = None,
        lasting: PersistentApplications | None = None,
    ) -> None:
        self._plans = plans
        self._config = config
        self._uplink = uplink
        self._ahead = ahead
        self._lasting = lasting
        self._is_deployed = False
        self._asking = set[asyncio.Future[Any]]()  # threads that wait for Serve
        self._releasing: asyncio.Task[None] | None = None
        self._wanted: dict[str, int] = {}  # how many processes each program of a group should have
        self._scaling = ServeScaling({program.name: num_at_start(program) for program in plans.firsts}, self._application)
        for program in plans.firsts:
            self._scaling.scale(program.name, program.options.bounds.num_at_start)

    async def prepare(self, program: Program, num: int) -> None:
        """Starts loading this many more replicas of a program before Serve knows of them, where that is possible."""
        if self._ahead is not None:
            await self._ahead.prepare(program, num, self._uplink)

    async def prepare_all(self, address: str) -> None:
        """Starts loading all replicas. They dial in to `address`."""
        self._uplink = replace(self._uplink, address=address)
        await asyncio.gather(*(self.prepare(program, program.options.bounds.num_at_start) for program in self._plans.firsts))

    async def add(self, places: Mapping[Program, ProgramSource]) -> None:
        """Starts replicas of other programs, now and from now on. Those of a group get processes of their own.

        Raises:
            DefinitionError: If one cannot be served by its plan.
            LaunchError: If Serve refuses them twice.
        """
        for program in places:
            check_plan(program)
        firsts = self._plans.add(places)
        for program in firsts:
            self._scaling.add(program.name, num_at_start(program))
        await asyncio.gather(*(self.prepare(program, program.options.bounds.num_at_start) for program in firsts))
        if self._is_deployed:  # otherwise they are about to be, with all others
            names = ", ".join(repr(program.name) for program in firsts)
            await start_with_retry(f"the programs {names} on Ray Serve", lambda: self._deploy(firsts), lambda: None)
            for program in firsts:
                self._scaling.scale(program.name, program.options.bounds.num_at_start)

    async def remove(self, program: Program) -> None:
        """Ends the replicas of a program, and waits until they have ended. The processes of a group end with its last program."""
        self._wanted.pop(program.name, None)
        first = self._plans.leave(program)
        if first is None:
            return
        self._scaling.remove(first.name)
        if self._ahead is not None:
            self._ahead.drop(first.name)
        try:
            if self._is_deployed:
                await self._ask(lambda: self._delete([first]))
        finally:
            self._plans.remove(first)

    async def deploy(self) -> None:
        """Deploys all replicas. They dial in as they come up; this does not wait for them.

        Raises:
            LaunchError: If Serve refuses them twice. Deploying again what it has accepted changes nothing.
        """
        nums_before: dict[str, int] = {}
        done: set[Program] = set()
        while programs := [program for program in self._plans.firsts if program not in done]:  # others may come meanwhile
            await start_with_retry("the programs on Ray Serve", lambda: nums_before.update(self._deploy(programs)), lambda: None)
            done.update(programs)
        self._is_deployed = True
        self._scaling.begin(nums_before)
        if self._ahead is not None:
            self._releasing = asyncio.create_task(self._release_forever(self._ahead))
        lasting = self._lasting
        if lasting is not None:  # only now: programs that come later are known, and `remove` ends them
            await start_with_retry("the end of earlier programs", lambda: lasting.delete_others(self._names), lambda: None)

    async def _release_forever(self, ahead: ForkedReplicas) -> None:
        """Releases processes that were forked ahead, and that no Serve replica adopts."""
        while True:
            await asyncio.sleep(_RELEASE_S)
            if ahead.is_waiting:
                try:
                    nums = await self._ask(self._nums_running)
                except Exception as error:  # Ray may raise anything; the next round tries again
                    _log.debug("serve_not_asked", error=text_of(error))
                else:
                    ahead.release_surplus({name for name, num in nums.items() if num >= self._scaling.num_wanted(name)})

    def _nums_running(self) -> dict[str, int]:
        """Returns how many replicas Serve runs of each program."""
        from ray import serve
        from ray.serve._private.common import ReplicaState

        programs = {self._application(program.name): program.name for program in self._plans.firsts}
        return {
            programs[name]: sum(each.replica_states.get(ReplicaState.RUNNING, 0) for each in application.deployments.values())
            for name, application in serve.status().applications.items()
            if name in programs
        }

    def _names(self) -> list[str]:
        return [program.name for program in self._plans.firsts]

    def scale(self, program: str, num_processes: int) -> None:
        """Keeps this many replicas of a program, from now on. Additional ones start at once where that is possible.

        A group has as many processes as the neediest of its programs. They get their numbers one after another, equal in the end.
        """
        names = self._plans.group_of(program)
        self._wanted[program] = num_processes
        first, number = names[0], max(self._wanted.get(name, num_processes) for name in names)
        num_more = self._scaling.scale(first, number)
        if self._ahead is not None and num_more:
            self._ahead.scale(first, num_more, self._uplink)

    async def stop_asking(self) -> None:
        """Sends no more requests to Serve, and waits for the pending ones.

        Serve must not get requests after Ray has ended: it would start another Ray, which nothing would end.
        """
        if self._releasing is not None:
            self._releasing.cancel()
            await asyncio.gather(self._releasing, return_exceptions=True)
        await self._scaling.close()
        while self._asking:
            await asyncio.wait(self._asking)

    async def _ask(self, step: Callable[[], Answer]) -> Answer:
        """Runs a request to Serve on a thread, which continues if this is cancelled."""
        asking = asyncio.ensure_future(asyncio.to_thread(step))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        return await asyncio.shield(asking)

    @property
    def plans(self) -> dict[str, str]:
        """The plan of each program (`PersistentApplications`); empty if no other orchestrator can have deployed them."""
        if self._lasting is None:
            return {}
        plans = {program.name: self._lasting.plan(program, source) for program, source in list(self._plans.programs.items())}
        for names in self._plans.names_of_groups:  # a process is replaced if any of its programs has changed
            plans |= dict.fromkeys(names, "+".join(plans[name] for name in names))
        return plans

    def _application(self, program: str) -> str:
        return program if self._lasting is None else self._lasting.application(program)

    def _deploy(self, programs: Sequence[Program]) -> dict[str, int]:
        """Deploys programs. Returns how many replicas there were before, by program."""
        import ray
        from ray import serve

        from dyorc.replica.serve_deployment import ReplicaDeployment

        num_devices = ray.cluster_resources().get("GPU", 0.0)
        plans = self.plans
        nums = {} if self._lasting is None else self._lasting.nums_running()
        nums = {name: number for name, number in nums.items() if name in plans}
        targets = []
        for program in programs:
            plan = plans.get(program.name, "")
            deployment = serve.deployment(ReplicaDeployment).options(
                name=program.name,
                version=plan or None,
                _internal=True,  # otherwise Serve makes up a version, and replaces the replicas
                num_replicas=max(num_at_start(program), nums.get(program.name, 0)),
                ray_actor_options=self._plans.actor_options(program, num_devices),
                health_check_period_s=self._config.health_check_period_s,
                health_check_timeout_s=self._config.health_check_timeout_s,
                graceful_shutdown_wait_loop_s=0.2,
                graceful_shutdown_timeout_s=self._config.graceful_shutdown_timeout_s,
                logging_config={"log_level": "WARNING", "enable_access_log": False},
            )
            source = replace(self._plans.source(program), plan=plan)
            group, others = self._plans.companions(program)
            companions = tuple(replace(other, plan=plans.get(other.name, "")) for other in others)
            bound = deployment.bind(source, self._uplink, self._plans.hosting(program), group, companions)
            application = self._application(program.name)
            targets.append(serve.RunTarget(bound, name=application, route_prefix=None, external_scaler_enabled=True))
        serve.run_many(targets, wait_for_ingress_deployment_creation=False, wait_for_applications_running=False)
        return {name: max(number, 1) for name, number in nums.items()}

    async def delete(self) -> None:
        """Ends all replicas, and waits until they have ended."""
        await self._ask(lambda: self._delete(self._plans.firsts))

    def _delete(self, programs: Sequence[Program]) -> None:
        from ray import serve

        for program in programs:
            serve.delete(self._application(program.name), _blocking=True)

    async def complaints(self) -> dict[str, str]:
        """Returns Serve's messages about programs that it cannot run, by program."""
        return await self._ask(self._complaints) if self._is_deployed else {}

    def _complaints(self) -> dict[str, str]:
        from ray import serve

        complaints: dict[str, str] = {}
        programs = {self._application(program.name): program.name for program in self._plans.firsts}
        for name, application in serve.status().applications.items():
            for deployment in application.deployments.values() if name in programs else ():
                if deployment.message and deployment.status.value in ("UNHEALTHY", "UPDATING", "DEPLOY_FAILED"):
                    complaints[programs[name]] = deployment.message.strip().splitlines()[0]
        return complaints
