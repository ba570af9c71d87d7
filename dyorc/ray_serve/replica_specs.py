"""What the replicas of each program get to know, from Serve, or from this process if it forks them before Serve is up."""

import math
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dyorc.authoring.program import Program
from dyorc.config import DeploymentConfig
from dyorc.ray_serve.replica_groups import groups_of, settle_groups
from dyorc.replica.assignment import ForkServerSpec, Hosting, Identity, ProgramSource, ReplicaAssignment, Uplink, new_replica_id
from dyorc.system.processors import num_processors

_MAX_UNANSWERED = 3
"""How many health checks may time out before Serve replaces a replica, and a Serve replica its process."""

_GRAINS = 10_000
"""The smallest part of a resource that Ray counts is 1 / `_GRAINS`."""
_FOR_GROUPS = ("dyorc.replica.member_group", "dyorc.planner.runtime.rank")
_OF_EACH = ("num_cpus", "num_gpus", "memory")
"""Options of Ray that a group needs once for each of its processes."""


class ReplicaSpecs:
    """Specifies the replicas of all programs.

    Args:
        programs: Each program with the place where its replicas find it.
        place: The fork server of each node.
        node: Name of this machine, if there is no other.
        stopped_timeout_s: How long a replica's process may be stopped.

    Raises:
        DefinitionError: If a program cannot be served by its plan.
        PlanError: If a plan's file cannot be used.
    """

    def __init__(
        self,
        programs: Mapping[Program, ProgramSource],
        config: DeploymentConfig,
        place: ForkServerSpec,
        node: str | None,
        stopped_timeout_s: float,
    ) -> None:
        self.programs = dict(programs)
        for program in programs:
            check_plan(program)
        self._groups = {group.first: group for group in settle_groups(programs)}
        self._left: set[Program] = set()
        self._config = config
        self._place = place
        self._node = node
        self._stopped_timeout_s = stopped_timeout_s

    @property
    def firsts(self) -> list[Program]:
        """The programs that stand for their groups, with Serve; a program that shares nothing stands for itself."""
        return list(self._groups)

    @property
    def names_of_groups(self) -> list[list[str]]:
        """The names of the programs in each group."""
        return [group.names for group in self._groups.values()]

    def group_of(self, program: str) -> list[str]:
        """Returns the names of the programs in a program's group; the first stands for all of them."""
        return next((names for names in self.names_of_groups if program in names), [program])

    def add(self, places: Mapping[Program, ProgramSource]) -> list[Program]:
        """Adds programs, a group as a whole. Returns the programs that stand for their groups."""
        self.programs |= places
        added = {group.first: group for group in groups_of(places)}
        self._groups |= added
        return list(added)

    def leave(self, program: Program) -> Program | None:
        """Notes that a program is no longer needed. Returns the program that stands for its group once none of the group is:
        then its processes may end. Until then they have it still. None, too, for a program of the server's own process."""
        group = next((group for group in self._groups.values() if program in group.programs), None)
        if group is None:
            return None
        self._left.add(program)
        return group.first if self._left.issuperset(group.programs) else None

    def remove(self, first: Program) -> None:
        """Removes the programs of a group whose processes have ended."""
        for program in self._groups.pop(first).programs:
            del self.programs[program]
            self._left.discard(program)

    def companions(self, program: Program) -> tuple[str, tuple[ProgramSource, ...]]:
        """Returns the group that a program stands for, and where the other programs of it are found."""
        group = self._groups[program]
        return group.name, tuple(self.source(other) for other in group.programs[1:])

    def source(self, program: Program) -> ProgramSource:
        """Returns where a program is found."""
        return replace(self.programs[program], overrides=program.overrides)

    def hosting(self, program: Program) -> Hosting:
        """Returns how a Serve replica keeps its process."""
        return Hosting(
            place=self._place_of(program),
            num_threads=self._num_threads(program),
            environment=self._environment(program),
            graceful_s=self._config.graceful_shutdown_timeout_s,
            ping_s=self._config.health_check_period_s,
            answer_timeout_s=_MAX_UNANSWERED * self._config.health_check_timeout_s,
            stopped_timeout_s=self._stopped_timeout_s,
            node=self._node,
        )

    def is_known(self, program: Program) -> bool:
        """Returns whether Ray's placement on this machine does not matter to replicas, so that they can be forked before it."""
        return self._node is not None and set(program.options.ray_actor_options) <= {"num_cpus"}

    def assignment(self, program: Program, uplink: Uplink) -> ReplicaAssignment:
        """Returns the assignment of a new replica on this machine. Only for programs that are known."""
        group, companions = self.companions(program)
        identity = Identity(
            replica_id=new_replica_id(program.name), program=program.name, node=self._node or "", num_cores=num_processors()
        )
        return ReplicaAssignment(
            source=self.source(program), identity=identity, uplink=uplink, num_threads=self._num_threads(program),
            graceful_s=self._config.graceful_shutdown_timeout_s, environment=self._environment(program),
            group=group, companions=companions,
        )  # fmt: skip

    def actor_options(self, program: Program, num_devices: float) -> Mapping[str, Any]:
        """Returns the Ray options of a program's replicas.

        A parked replica needs no device, but Ray reserves what it declares for as long as its process lives. So programs whose
        replicas can all be parked declare only a part of a device, by which Ray spreads them over all devices; how many are warm
        at a time is then decided here (`dyorc.scaling.devices`).

        Args:
            num_devices: How many devices the cluster has.
        """
        options = _reserved_options(program)
        if not _shares_device(program):
            return options
        owners = [other.options for other in self.firsts if not _shares_device(other)]
        num_owned = sum(each.num_gpus * each.num_processes * max(each.bounds.max_replicas, 1) for each in owners)
        free = num_devices - num_owned
        num_sharing = sum(other.options.bounds.max_replicas for other in self.firsts if _shares_device(other))
        if free <= 0:
            return options
        part = 1 / math.ceil(num_sharing / int(free)) if free >= 1 else free / num_sharing
        return {**options, "num_gpus": max(math.floor(min(part, program.options.num_gpus) * _GRAINS) / _GRAINS, 1 / _GRAINS)}

    @property
    def num_cpus_wanted(self) -> float:
        """CPUs that all replicas together reserve."""
        return sum(_num_cpus(program) * num_at_start(program) for program in self.firsts)

    @property
    def num_cpus_at_most(self) -> float:
        """CPUs that all replicas together reserve when all programs are scaled up."""
        return sum(_num_cpus(program) * max(program.options.bounds.max_replicas, 1) for program in self.firsts)

    def _environment(self, program: Program) -> dict[str, str]:
        """Returns the variables that libraries with their own threads read when they are loaded."""
        return {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(self._num_threads(program))}

    def _num_threads(self, program: Program) -> int:
        """Returns the threads of a replica, or of each process of a group: its share of this machine's processors, so that all
        together do not oversubscribe it.
        """
        num_cores = num_processors()
        share = min(1.0, num_cores / max(self.num_cpus_wanted, 1e-9))
        return max(1, int(program.options.num_cpus * share))

    def _place_of(self, program: Program) -> ForkServerSpec:
        """Returns the fork server for a program; programs with their own environment need their own fork server."""
        environment = program.options.ray_actor_options.get("runtime_env")
        if not environment:
            return self._place
        return replace(self._place, folder=f"{self._place.folder}-{zlib.crc32(repr(environment).encode()):08x}")


def libraries_of_plans(programs: Iterable[Program]) -> tuple[str, ...]:
    """Returns what a fork server should import for programs that have plans, so that groups start sooner."""
    return _FOR_GROUPS if any(program.options.plan is not None for program in programs) else ()


def check_plan(program: Program) -> None:
    """Refuses a program that cannot be served by its plan. See `ReplicaSpecs`."""
    program.options.check_plan(f"program {program.name!r}")


def _shares_device(program: Program) -> bool:
    """Returns whether a program can time-share a device with others."""
    return program.options.bounds.min_warm == 0 and 0 < program.options.num_gpus <= 1 and program.options.plan is None


def _num_cpus(program: Program) -> float:
    """Returns how many processors Ray reserves for a replica."""
    return program.options.num_cpus * program.options.num_processes


def _reserved_options(program: Program) -> Mapping[str, Any]:
    """Returns what Ray reserves for a replica: for all processes of a group on one node, since one actor keeps them."""
    options, num = program.options.ray_actor_options, program.options.num_processes
    if num == 1:
        return options
    reserved = {**options, "num_cpus": program.options.num_cpus}
    reserved |= {name: reserved[name] * num for name in _OF_EACH if name in reserved}
    if "resources" in options:
        reserved["resources"] = {name: amount * num for name, amount in options["resources"].items()}
    return reserved


def num_at_start(program: Program) -> int:
    """Returns how many replicas Serve gets at first: at least 1, since it does not accept 0."""
    return max(program.options.bounds.num_at_start, 1)
