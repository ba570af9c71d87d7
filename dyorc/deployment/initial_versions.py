"""Loads what a server serves when it starts: its targets, or what was deployed in their place."""

import contextlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from dyorc.authoring.bundles import Bundle
from dyorc.authoring.loading import absolute, name_in, parts_of, programs_of
from dyorc.authoring.overrides import override_programs
from dyorc.authoring.program import Program
from dyorc.authoring.targets import import_places
from dyorc.authoring.workflow import Workflow
from dyorc.deployment.loading_versions import (
    LoadedVersion,
    fingerprints_of,
    fingerprints_of_target,
    first_version,
    names_for,
    rename_programs,
)
from dyorc.deployment.loading_versions import load_bundle as load_bundle
from dyorc.deployment.state import DeploymentState, ModelHistory, Version
from dyorc.errors import DefinitionError, DyOrcError
from dyorc.models.registry import ModelRegistry
from dyorc.replica.user_code import import_outside_of_loop

_log = structlog.get_logger("dyorc.deploying")

Options = Mapping[str, Mapping[str, Any]]


@contextlib.contextmanager
def load_initial_versions(
    targets: Sequence[str],
    stored: DeploymentState,
    options: Options,
    live: Iterable[Version] = (),
    importing: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> Generator[tuple[list[LoadedVersion], DeploymentState]]:
    """Imports the targets as they are on disk, unless versions of them were deployed.

    Args:
        stored: What was deployed when the server last ran.
        options: The settings' options for programs, by their own names. While entered, programs have these options.
        live: Versions that requests of gateways may still need.
        importing: Entered while modules are imported.

    Yields:
        All versions to put on offer, then retired ones that earlier requests may still need, and the deployment state.

    Raises:
        DefinitionError: If a target cannot be served, or there are options of an unknown program.
    """
    wanted = [absolute(target) for target in targets]
    lines = {name: line for name, line in stored.lines.items() if not line.origin or line.origin in wanted}
    served = {line.origin for line in lines.values()}
    with importing():
        places = {target: parts_of(target)[0] for target in wanted if target not in served}
        imported = import_outside_of_loop(partial(import_places, list(dict.fromkeys(places.values()))))
        restored = [_restore(line.versions[name], options) for line in lines.values() for name in line.loaded_names()]
    fresh = [(target, name_in(imported[place].module, *parts_of(target))) for target, place in places.items()]
    ModelRegistry.of(definition for _, definition in fresh)  # which checks their names
    mine = {program.name for _, definition in fresh for program in programs_of(definition)}
    others = {own for loaded in restored for own in loaded.programs}
    programs = dict.fromkeys(program for _, definition in fresh for program in programs_of(definition))
    chosen = {name: changes for name, changes in options.items() if name in mine or name not in others}
    with override_programs(programs, chosen):
        record = DeploymentState(stored.number, lines)
        fingerprints = {place: fingerprints_of(code.bundle, code.importer) for place, code in imported.items()}
        for target, definition in fresh:
            bundle = replace(imported[places[target]].bundle, target=target)
            prints = fingerprints_of_target(definition, fingerprints[places[target]])
            loaded = _first(bundle, definition, prints, restored, record)
            restored.append(loaded)
            history = ModelHistory.starting_with(loaded.as_version, origin=target)
            record = DeploymentState(record.number, {**record.lines, loaded.model: history})
        for name, line in lines.items():
            _log.warning("deployed_versions_served", model=name, versions=list(line.loaded_names()), target=line.origin)
        yield restored + _lingering(record.retired_of(live), options), record


def _lingering(versions: Iterable[Version], options: Options) -> list[LoadedVersion]:
    """Loads retired versions that in-flight requests may still need, as far as they can be loaded."""
    loaded: list[LoadedVersion] = []
    for version in versions:
        try:
            loaded.append(_restore(version, options))
        except DyOrcError as error:
            _log.warning("version_not_kept", model=version.model, version=version.version, error=str(error))
    return loaded


def _restore(version: Version, options: Options) -> LoadedVersion:
    workflow, importer = load_bundle(version.bundle, options)
    prints = fingerprints_of_target(workflow, fingerprints_of(version.bundle, importer))
    return rename_programs(workflow, version, prints, importer)


def _first(
    bundle: Bundle,
    workflow: Workflow | Program,
    prints: Mapping[str, str | None],
    known: Iterable[LoadedVersion],
    record: DeploymentState,
) -> LoadedVersion:
    """Returns the code on disk as a first version."""
    if workflow.name in record.lines:
        raise DefinitionError(f"{bundle.target} is {workflow.name!r}, and something else was deployed as that; undeploy it first")
    known = list(known)
    objects = {program: loaded for loaded in known for program in loaded.programs.values()}
    same = {program.name: program.name for program in programs_of(workflow) if program in objects}
    names = names_for(prints, "1", known, {name for version in known for name in version.names.values()}, record.names())
    return first_version(workflow, bundle, prints, names | same, known)
