"""Which programs share the processes of their replicas on Ray, and what Ray reserves for such a process.

A group is one Serve deployment, named as its first program. Each of its processes holds a copy of all its programs: residents
never leave it, so a chain of calls finds all programs where it began.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dyorc.authoring.program import Program
from dyorc.errors import DefinitionError

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


def shares_process(program: Program) -> bool:
    """Returns whether a program is in a process together with others, or holds residents."""
    return program.options.group is not None or bool(program.signature.residents)


def groups_of(programs: Iterable[Program]) -> list[ReplicaGroup]:
    """Returns programs as the groups in which they run."""
    groups: list[ReplicaGroup] = []
    members: dict[str, list[Program]] = {}
    for program in programs:
        if not shares_process(program):
            groups.append(ReplicaGroup("", (program,)))
        else:
            members.setdefault(program.group, []).append(program)
    return [*groups, *[ReplicaGroup(name, tuple(each)) for name, each in members.items()]]


def settle_groups(programs: Iterable[Program]) -> list[ReplicaGroup]:
    """Gives all programs of a group the same number of replicas, and what Ray reserves for them: the most that any declares.

    Raises:
        DefinitionError: If their options contradict each other, or are not for groups.
    """
    groups = groups_of(programs)
    for group in groups:
        if group.name:
            _check(group)
            number = max(program.options.bounds.max_replicas for program in group.programs)
            merged = _merge([program for program in group.programs if program.options.ray_actor_options], group.name)
            for program in group.programs:
                options = replace(program.options, num_replicas=number, ray_actor_options=merged)
                object.__setattr__(program, "options", options)  # frozen for all other code
    return groups


def refuse_split_groups(here: Sequence[Program], on_ray: Sequence[Program]) -> None:
    """Raises DefinitionError if programs of a group would run in different processes."""
    places = {program.group: program for program in here if shares_process(program)}
    for program in on_ray:
        if shares_process(program) and (other := places.get(program.group)) is not None:
            raise DefinitionError(
                f"programs {other.name!r} and {program.name!r} are both in group {program.group!r}, and only {other.name!r} is "
                f"declared in_process; programs of a group share a process, so declare it for all of them, or for none"
            )


def refuse_addition(program: Program) -> None:
    """Raises DefinitionError if a program cannot be added to a running server, since processes that run get no more programs."""
    if shares_process(program):
        raise DefinitionError(
            f"program {program.name!r} is in group {program.group!r}, whose replicas on Ray share processes; those that "
            f"run get no further programs: restart the server with the new version, or serve it by `dyorc serve --in-process`"
        )


def _check(group: ReplicaGroup) -> None:
    for program in group.programs:
        owner = f"program {program.name!r} of group {group.name!r}"
        bounds = program.options.bounds
        if program.options.plan is not None:
            raise DefinitionError(
                f"{owner} has a plan, whose ranks are separate processes; programs of a group share one process"
            )
        if program.options.autoscaling_config is not None or bounds.min_warm != bounds.max_replicas:
            raise DefinitionError(
                f"{owner}: replicas of a group are not scaled on Ray, because residents cannot leave their process; declare a "
                f"number as num_replicas, without autoscaling_config"
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
