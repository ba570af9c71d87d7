"""Programs whose replicas are processes of their own: a control plane in place of Ray Serve's, under the real code that asks it.

It lives in a process that never fails, as Ray's head does for the orchestrators of a group: they come and go, replicas stay.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from dyorc.authoring.program import Program
from dyorc.config import Settings
from dyorc.leader_election.leader import LeaderTerm
from dyorc.ray_serve import serve_scaling
from dyorc.ray_serve.persistent_applications import PersistentApplications
from dyorc.ray_serve.replica_specs import ReplicaSpecs, num_at_start
from dyorc.ray_serve.serve_replicas import ServeReplicas
from dyorc.ray_serve.user_imports import UserImports
from dyorc.replica.assignment import ForkServerSpec, Hosting, OrchestratorGroup, ProgramSource, ReplicaAssignment, Uplink
from dyorc.replica.replica_monitor import ReplicaMonitor
from dyorc.server import orchestrator_process, runtime
from dyorc.transport.arena_file import sweep
from dyorc.transport.cluster_network import LOCAL_NODE
from tests.whole_server import replica_processes
from tests.whole_server.replica_processes import VirtualForks
from tests.whole_server.world import World

_RECONCILE_S = 0.1
_LONGEST_ANSWER_S = 0.2
_SETTLING_S = 4.0
"""A process takes up to 3 s to start."""
_REFUSAL_RATIO = 0.03
"""How often the control plane refuses a number, as Serve's controller does when it is busy."""


@dataclass
class Deployment:
    """What the control plane knows of a program.

    Attributes:
        num_wanted: How many replicas it keeps.
        monitors: Of the replicas that it keeps.
        plan: Replicas of another plan are replaced.
    """

    assignment: ReplicaAssignment
    hosting: Hosting
    num_wanted: int
    plan: str
    monitors: list[tuple[str, ReplicaMonitor]] = field(default_factory=list[tuple[str, ReplicaMonitor]])


class ControlPlane:
    """Keeps as many replicas of each program as were last asked for: what Ray Serve's controller does.

    Attributes:
        forks: What starts the processes.
        programs: All programs that were ever served, by name.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.forks = VirtualForks(world)
        self.programs: dict[str, Program] = {}
        self.deployments: dict[str, Deployment] = {}
        self._changed_s = 0.0
        world.start_process("control-plane", self._run)

    def _run(self) -> None:
        while True:
            time.sleep(_RECONCILE_S)
            for deployment in self.deployments.values():
                self._reconcile(deployment)

    def _reconcile(self, deployment: Deployment) -> None:
        for plan, monitor in list(deployment.monitors):
            if plan != deployment.plan or not _is_healthy(monitor):
                self._retire(deployment, (plan, monitor))
        while len(deployment.monitors) > deployment.num_wanted:
            self._retire(deployment, self._world.chance.choice(deployment.monitors))
        while len(deployment.monitors) < deployment.num_wanted:
            forks: Any = self.forks
            monitor = ReplicaMonitor(forks, deployment.assignment, deployment.hosting)
            deployment.monitors.append((deployment.plan, monitor))
            monitor.start()

    def _retire(self, deployment: Deployment, kept: tuple[str, ReplicaMonitor]) -> None:
        deployment.monitors.remove(kept)
        threading.Thread(target=kept[1].stop).start()

    def answer(self) -> None:
        """Takes as long as a request to it does."""
        self._world.park(self._world.now_ns + int(self._world.chance.uniform(0, _LONGEST_ANSWER_S) * 1e9))

    def scale(self, wanted: Mapping[str, tuple[str, int]]) -> None:
        """Keeps so many replicas of programs; see `dyorc.ray_serve.serve_scaling`."""
        self.answer()
        if self._world.chance.random() < _REFUSAL_RATIO:
            raise RuntimeError("the control plane is busy")
        for program, number in wanted.values():
            self.deployments[program].num_wanted = number
        self._changed_s = self._world.elapsed_s

    def delete(self, program: str) -> None:
        """Ends all replicas of a program."""
        deployment = self.deployments.pop(program, None)
        if deployment is not None:
            for kept in list(deployment.monitors):
                self._retire(deployment, kept)

    @property
    def is_settled(self) -> bool:
        """Whether processes have had time to come and go since it was last asked for another number."""
        return self._world.elapsed_s - self._changed_s > _SETTLING_S

    @property
    def num_wanted(self) -> int:
        """How many processes there should be at rest."""
        return sum(deployment.num_wanted for deployment in self.deployments.values())


def _is_healthy(monitor: ReplicaMonitor) -> bool:
    try:
        monitor.check()
    except RuntimeError:
        return False
    return True


class _Applications(PersistentApplications):
    """The programs that the control plane has."""

    def __init__(self, plane: ControlPlane, group: str, code: str, uplink: Uplink) -> None:
        super().__init__(group, code, uplink)
        self._plane = plane

    def nums_running(self) -> dict[str, int]:
        """See `PersistentApplications.nums_running`."""
        return {program: len(deployment.monitors) for program, deployment in self._plane.deployments.items()}

    def delete_others(self, programs: Callable[[], Any]) -> None:
        """See `PersistentApplications.delete_others`."""
        self._plane.answer()
        for program in sorted(self._plane.deployments.keys() - set(programs())):
            self._plane.delete(program)


class _Replicas(ServeReplicas):
    """Asks the control plane where `ServeReplicas` asks Ray."""

    def __init__(
        self, plane: ControlPlane, plans: ReplicaSpecs, settings: Settings, uplink: Uplink, lasting: _Applications
    ) -> None:
        super().__init__(plans, settings.deployment, uplink, lasting=lasting)
        self._plane = plane

    async def add(self, places: Mapping[Program, ProgramSource]) -> None:
        """See `ServeReplicas.add`."""
        self._plane.programs |= {program.name: program for program in places}
        await super().add(places)

    def _deploy(self, programs: Sequence[Program]) -> dict[str, int]:
        self._plane.answer()
        plans, deployments = self.plans, self._plane.deployments
        nums = {program.name: deployments[program.name].num_wanted for program in programs if program.name in deployments}
        for program in programs:
            plan, made = plans.get(program.name, ""), self._plans.assignment(program, self._uplink)
            companions = tuple(replace(other, plan=plans.get(other.name, "")) for other in made.companions)
            assignment = replace(made, source=replace(made.source, plan=plan), companions=companions)
            hosting, num_wanted = self._plans.hosting(program), max(num_at_start(program), nums.get(program.name, 0))
            monitors = deployments[program.name].monitors if program.name in nums else []
            deployments[program.name] = Deployment(assignment, hosting, num_wanted, plan, monitors)
        return nums

    def _delete(self, programs: Sequence[Program]) -> None:
        self._plane.answer()
        for program in programs:
            self._plane.delete(program.name)

    def _nums_running(self) -> dict[str, int]:
        return {}

    def _complaints(self) -> dict[str, str]:
        return {}


class VirtualHost:
    """See `dyorc.server.replica_host.ReplicaHost`. What it starts outlives it, as with `RayCluster`."""

    network = None
    node = LOCAL_NODE

    def __init__(
        self,
        plane: ControlPlane,
        imports: UserImports,
        programs: Mapping[Program, ProgramSource],
        settings: Settings,
        lead: LeaderTerm,
    ) -> None:
        self._settings = settings
        plane.programs |= {program.name: program for program in programs}
        specs = ReplicaSpecs(
            programs, settings.deployment, ForkServerSpec(folder="forks"), LOCAL_NODE, settings.link.kill_after_s
        )
        group = OrchestratorGroup(name=lead.group, store=settings.store or "")
        uplink = Uplink(address="", link=settings.link, transport=settings.transport, group=group)
        self.replicas = _Replicas(plane, specs, settings, uplink, _Applications(plane, lead.group, imports.code, uplink))

    @property
    def link_address(self) -> str:
        """See `ReplicaHost.link_address`."""
        return f"unix://replicas-{os.getpid()}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.replicas.stop_asking()
        sweep(self._settings.transport.arena_folder)

    async def deploy(self, address: str) -> None:
        """See `ReplicaHost.deploy`."""
        await self.replicas.prepare_all(address)
        await self.replicas.deploy()

    def end_replica(self, pid: int) -> None:
        """The replica may just have left for another leader; its monitor watches it."""


def prepare(world: World) -> ControlPlane:
    """Puts a control plane in place of Ray."""
    plane = ControlPlane(world)
    servers: Any = runtime

    def host(
        imports: UserImports, programs: Any, settings: Settings, start: object, spans: object, lead: LeaderTerm
    ) -> VirtualHost:
        return VirtualHost(plane, imports, programs, settings, lead)

    servers.ray_host = host

    async def connect_ahead(settings: Settings, *, without_ray: bool) -> None:
        pass

    roots: Any = orchestrator_process
    roots.connect_ahead = connect_ahead
    scaling: Any = serve_scaling
    scaling._send = plane.scale
    replica_processes.prepare(plane.programs)
    return plane
