"""Options of programs from outside their code: an operator sizes batches and replicas without changing the user's module."""

import contextlib
from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from typing import Any

from dyorc.authoring.program import Program, ProgramOptions
from dyorc.errors import DefinitionError

_FOR_RAY = ("num_cpus", "num_gpus")


@contextlib.contextmanager
def override_programs(programs: Iterable[Program], overrides: Mapping[str, Mapping[str, Any]]) -> Generator[None]:
    """Gives programs other options while entered.

    In place, since the user's workflows hold the very objects. Enter it before anything has looked at their options.

    Args:
        overrides: Options by the programs' names: those of `ProgramOptions`, ``num_cpus`` and ``num_gpus``.

    Raises:
        DefinitionError: If there is no program of that name, or it cannot have such an option.
    """
    named = {program.name: program for program in programs}
    if unknown := sorted(set(overrides) - set(named)):
        raise DefinitionError(f"the settings have options of a program {unknown[0]!r}; the programs are {sorted(named)}")
    before = {named[name]: (named[name].options, named[name].overrides) for name in overrides}
    try:
        for name, changes in overrides.items():
            override(named[name], changes)
        yield
    finally:
        for program, (options, changes) in before.items():
            _set(program, options, changes)


def override(program: Program, changes: Mapping[str, Any]) -> Program:
    """Returns the same program with other options, for good. For processes that run just this program.

    Raises:
        DefinitionError: If it cannot have such an option.
    """
    _set(program, _options(program, changes), changes)
    return program


def _set(program: Program, options: ProgramOptions, changes: Mapping[str, Any]) -> None:
    object.__setattr__(program, "options", options)  # frozen for everybody else
    object.__setattr__(program, "overrides", changes)


def _options(program: Program, changes: Mapping[str, Any]) -> ProgramOptions:
    owner = f"program {program.name!r}, as set from outside its code"
    before = program.options
    found = {name: value for name, value in changes.items() if name not in _FOR_RAY}
    if "max_batch_size" in found and not before.batched:
        raise DefinitionError(f"{owner}: max_batch_size is {found['max_batch_size']}, but the program is declared batched=False")
    for_ray = {name: value for name, value in changes.items() if name in _FOR_RAY}
    found["ray_actor_options"] = {**before.ray_actor_options, **found.get("ray_actor_options", {}), **for_ray}
    if "num_replicas" in found:
        found.setdefault("autoscaling_config", None)
    elif "autoscaling_config" in found:
        found["num_replicas"] = 1
    options = replace(before, **found)
    options.check(owner)
    return options
