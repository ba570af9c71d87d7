"""Options of programs from outside their code: an operator sizes batches and replicas without changing the user's module."""

import contextlib
from collections.abc import Generator, Iterable, Mapping
from typing import Any

from dyorc.authoring.program import Program, ProgramOptions
from dyorc.errors import DefinitionError

_FOR_RAY = ("num_cpus", "num_gpus")


@contextlib.contextmanager
def override_programs(programs: Iterable[Program], overrides: Mapping[str, Mapping[str, Any]]) -> Generator[None]:
    """Gives programs other options while entered.

    Changes the programs in place, since the user's workflows hold these objects. Enter it before their options are used.

    Args:
        overrides: Options by the programs' names: those of `ProgramOptions`, ``num_cpus`` and ``num_gpus``.

    Raises:
        DefinitionError: If a program is unknown, or cannot have such an option.
    """
    named = {program.name: program for program in programs}
    if unknown := sorted(set(overrides) - set(named)):
        raise DefinitionError(f"unknown program {unknown[0]!r} in the settings; known programs: {sorted(named)}")
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
    object.__setattr__(program, "options", options)  # frozen for all other code
    object.__setattr__(program, "overrides", changes)


def _options(program: Program, changes: Mapping[str, Any]) -> ProgramOptions:
    owner = f"program {program.name!r}, as set from outside its code"
    before = program.options
    options = {name: value for name, value in changes.items() if name not in _FOR_RAY}
    if "max_batch_size" in options and not before.batched:
        raise DefinitionError(
            f"{owner}: max_batch_size is {options['max_batch_size']}, but the program is declared batched=False"
        )
    if "cost" in options:
        raise DefinitionError(f"{owner}: cost is a function, and only its code can declare one")
    if "max_batch_cost" in options and before.cost is None:
        raise DefinitionError(
            f"{owner}: max_batch_cost is {options['max_batch_cost']}, but the program declares no cost of a call"
        )
    for_ray = {name: value for name, value in changes.items() if name in _FOR_RAY}
    options["ray_actor_options"] = {**before.ray_actor_options, **options.get("ray_actor_options", {}), **for_ray}
    if "num_replicas" in options:
        options.setdefault("autoscaling_config", None)
    elif "autoscaling_config" in options:
        options["num_replicas"] = 1
    changed = before.changed(**options)
    changed.check(owner)
    return changed
