"""Which programs share the processes of their replicas on Ray, and what Ray reserves for such a process.

A group is one Serve deployment, named as its first program. Each of its processes holds a copy of all its programs: residents
never leave it, so a chain of calls finds all programs where it began.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dyorc.authoring.program import Program
from dyorc.errors import DefinitionError
from dyorc.scaling.autoscaling import options_of
from dyorc.scaling.model import Bounds
from dyorc.scaling.shared_processes import joint_bounds

_LARGEST = ("num_cpus", "num_gpus", "memory")
"""Options of Ray: a group gets the largest value that any of its programs declares."""


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """Programs that share their processes.

    Attributes:
        name: The group's; empty for a program that shares nothing, and has no residents.
        programs: The first one stands for all of them, with Serve.
    """

    name: str
    programs: tuple[Program, ...]

    @property
    def names(self) -> list[str]:
        """The names of all."""
        return [program.name for program in self.programs]

    @property
    def first(self) -> Program:
        """The program that stands for all of them."""
        return self.programs[0]


def groups_of(programs: Iterable[Program]) -> list[ReplicaGroup]:
    """Returns programs as the groups in which they run."""
    groups: list[ReplicaGroup] = []
    members: dict[str, list[Program]] = {}
    for program in programs:
        if not program.shares_process:
            groups.append(ReplicaGroup("", (program,)))
        else:
            members.setdefault(program.group, []).append(program)
    return [*groups, *[ReplicaGroup(name, tuple(each)) for name, each in members.items()]]


def settle_groups(programs: Iterable[Program]) -> list[ReplicaGroup]:
    """Gives all programs of a group the same bounds of their number of replicas, and what Ray reserves for them: the most that
    any declares. A program that declares no number has that of the others.

    Raises:
        DefinitionError: If their options contradict each other, or are not for groups.
    """
    groups = groups_of(programs)
    for group in groups:
        if group.name:
            _check(group)
            declared = [program.options.bounds for program in group.programs if _declares_number(program)]
            bounds = joint_bounds(declared or [Bounds()])
            merged = _merge([program for program in group.programs if program.options.ray_actor_options], group.name)
            for program in group.programs:
                numbers = _numbers(bounds, program.options.bounds.target_calls)
                options = program.options.changed(ray_actor_options=merged, **numbers)
                object.__setattr__(program, "options", options)  # frozen for all other code
    return groups


def _declares_number(program: Program) -> bool:
    return program.options.num_replicas != 1 or program.options.autoscaling_config is not None


def _numbers(bounds: Bounds, target_calls: float | None) -> dict[str, Any]:
    """Returns bounds as options, with a program's own limit of calls for each replica."""
    if bounds.is_fixed:
        return {"num_replicas": bounds.min_warm, "autoscaling_config": None}
    return {"num_replicas": 1, "autoscaling_config": options_of(replace(bounds, target_calls=target_calls))}


def settle_places(programs: Iterable[Program]) -> None:
    """Settles groups of programs that are about to be served, where those run on Ray that are not declared ``in_process``.

    Raises:
        DefinitionError: If a group is split, or cannot be settled.
    """
    programs = list(programs)
    remote = [program for program in programs if not program.options.in_process]
    refuse_split_groups([program for program in programs if program.options.in_process], remote)
    settle_groups(remote)


def refuse_split_groups(here: Sequence[Program], on_ray: Sequence[Program]) -> None:
    """Raises DefinitionError if programs of a group would run in different processes."""
    places = {program.group: program for program in here if program.shares_process}
    for program in on_ray:
        if program.shares_process and (other := places.get(program.group)) is not None:
            raise DefinitionError(
                f"programs {other.name!r} and {program.name!r} are both in group {program.group!r}, and only {other.name!r} is "
                f"declared in_process; programs of a group share a process, so declare it for all of them, or for none"
            )


def _check(group: ReplicaGroup) -> None:
    for program in group.programs:
        owner = f"program {program.name!r} of group {group.name!r}"
        if program.options.plan is not None:
            raise DefinitionError(
                f"{owner} has a plan, whose ranks are separate processes; programs of a group share one process"
            )


def _merge(programs: Sequence[Program], group: str) -> dict[str, Any]:
    """Returns the options of Ray for a process of a group."""
    merged: dict[str, Any] = {}
    owners: dict[str, str] = {}
    for program in programs:
        for name, value in program.options.ray_actor_options.items():
            if name not in merged:
                merged[name], owners[name] = value, program.name
            elif name in _LARGEST:
                merged[name] = max(merged[name], value)
            elif merged[name] != value:
                raise DefinitionError(
                    f"group {group!r}: ray_actor_options differ in {name!r}, which is {merged[name]!r} for {owners[name]!r} and "
                    f"{value!r} for {program.name!r}; its programs share a process, so declare it once, or equally"
                )
    return merged
