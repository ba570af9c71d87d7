"""Loads what a server serves when it starts: its targets, or what was deployed in their place."""

import contextlib
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import structlog

from dyorc.authoring.bundles import Bundle
from dyorc.authoring.loading import absolute, name_in, parts_of, programs_of
from dyorc.authoring.overrides import override_programs
from dyorc.authoring.program import Program
from dyorc.authoring.targets import NOTHING_READ, code_on_disk, import_places
from dyorc.authoring.workflow import Workflow
from dyorc.deployment.loading_versions import (
    LoadedVersion,
    declared_groups,
    fingerprints_of,
    fingerprints_of_target,
    first_free,
    first_version,
    names_for,
    rename_programs,
)
from dyorc.deployment.loading_versions import load_bundle as load_bundle
from dyorc.deployment.state import DeploymentState, ModelHistory, Version
from dyorc.errors import DefinitionError, DyOrcError
from dyorc.models.offers import ModelKey
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
    store: str = "",
    code: Mapping[str, Bundle] = NOTHING_READ,
    *,
    is_group: bool = True,
) -> Generator[tuple[list[LoadedVersion], DeploymentState]]:
    """Imports the targets as they are on disk, unless versions of them were deployed.

    Args:
        stored: What was deployed when the server last ran.
        options: The settings' options for programs, by their own names. While entered, programs have these options.
        live: Versions that requests of gateways may still need.
        importing: Entered while modules are imported.
        store: Where `stored` was read, for logs.
        code: The code of targets that were never deployed, by target, as this server has read it before; that of others is on the
            disk.
        is_group: Whether an orchestrator serves them for the gateways of its group. All orchestrators of a group give programs
            the same names, and serve all that is deployed or nothing. Otherwise models that no target names yield to the targets,
            and versions that cannot be loaded are left out.

    Yields:
        All versions to put on offer, then retired ones that earlier requests may still need, and the deployment state.

    Raises:
        DefinitionError: If a target cannot be served, there are options of an unknown program, or nothing that is deployed can be
            loaded.
    """
    wanted = [absolute(target) for target in targets]
    lines = {name: line for name, line in stored.lines.items() if not line.origin or _is_wanted(line, wanted, code)}
    served = {line.origin for line in lines.values()}
    with importing():
        places = {target: parts_of(target)[0] for target in wanted if target not in served}
        read = {place: code[target] for target, place in places.items() if target in code}
        imported = import_outside_of_loop(partial(import_places, list(dict.fromkeys(places.values())), read))
        fresh = [(target, name_in(imported[place].module, *parts_of(target))) for target, place in places.items()]
        ModelRegistry.of(definition for _, definition in fresh)  # which checks their names
        if not is_group:
            lines = _beside([definition for _, definition in fresh], lines)
        restored = _restore_all(lines, options, store, is_strict=is_group, is_alone=not fresh)
    mine = {program.name for _, definition in fresh for program in programs_of(definition)}
    others = {own for line in lines.values() for version in line.versions.values() for own in version.names}
    programs = dict.fromkeys(program for _, definition in fresh for program in programs_of(definition))
    chosen = {name: changes for name, changes in options.items() if name in mine or name not in others}
    with override_programs(programs, chosen):
        record = DeploymentState(stored.number, lines)
        groups: dict[str, str] = {}
        used_groups = record.groups()
        fingerprints = {place: fingerprints_of(code.bundle, code.importer) for place, code in imported.items()}
        for target, definition in fresh:
            bundle = replace(imported[places[target]].bundle, target=target)
            prints = fingerprints_of_target(definition, fingerprints[places[target]])
            known = restored if is_group else [version for version in restored if _is_of_targets(version, record)]
            loaded = _first(bundle, definition, prints, known, record, groups, used_groups)
            restored.append(loaded)
            history = ModelHistory.starting_with(loaded.as_version, origin=target)
            record = DeploymentState(record.number, {**record.lines, loaded.model: history})
        if not is_group:  # of two models with one name, the first is served
            record = DeploymentState(stored.number, dict(sorted(record.lines.items(), key=lambda item: not item[1].origin)))
            restored.sort(key=lambda version: not _is_of_targets(version, record))
        served = {version.key for version in restored}
        for name, line in lines.items():
            _log_restored(name, line, [version for version in line.loaded_names() if ModelKey(name, version) in served], store)
        yield restored + _lingering(record.retired_of(live), options), record


def _is_wanted(line: ModelHistory, wanted: Collection[str], code: Mapping[str, Bundle]) -> bool:
    """Returns whether a server with these targets serves a noted target as it is noted. One that was never deployed is served
    from the disk; if that has the same code still, its programs keep their names, and the processes that they share with deployed
    versions."""
    if line.origin not in wanted:
        return False
    if not line.is_as_started:
        return True
    (bundle,) = (version.bundle for version in line.versions.values())
    now = code.get(line.origin) or code_on_disk(line.origin, bundle.main)
    return now.digest == bundle.digest


def _is_of_targets(version: LoadedVersion, record: DeploymentState) -> bool:
    return bool(record.lines[version.model].origin)


def _beside(definitions: Sequence[Workflow | Program], lines: Mapping[str, ModelHistory]) -> dict[str, ModelHistory]:
    """Returns what is deployed, without models whose names the targets need, and with other unique names for programs whose names
    they need.

    Args:
        definitions: The targets that are served as they are on disk.
        lines: What is deployed, by model.
    """
    own = {name: line for name, line in lines.items() if line.origin}
    programs = {program.name for definition in definitions for program in programs_of(definition)}
    taken = programs | {name for line in own.values() for version in line.versions.values() for name in version.names}
    workflows = {definition.name for definition in definitions if isinstance(definition, Workflow)}
    workflows |= {name for name in own if name not in taken}
    used = programs | DeploymentState(0, lines).names()
    new_names: dict[str, str] = {}
    beside = dict(own)
    for model, line in lines.items():
        if line.origin:
            continue
        if model in taken | workflows or any(workflows & set(version.names) for version in line.versions.values()):
            _log.warning(
                "deployed_model_not_served", model=model, reason="a target of this server needs its name, or a program's"
            )
            continue
        for version in line.versions.values():
            for name in sorted(programs & set(version.names.values()) - set(new_names)):
                new_names[name] = first_free([f"{name}@{version.version}"], used | set(new_names.values()))
        beside[model] = _with_names(line, new_names)
    return beside


def _with_names(line: ModelHistory, new_names: Mapping[str, str]) -> ModelHistory:
    """Returns a history in which programs have other unique names."""
    versions = {
        key: msgspec.structs.replace(version, names={own: new_names.get(name, name) for own, name in version.names.items()})
        for key, version in line.versions.items()
    }
    return msgspec.structs.replace(line, versions=versions)


def _restore_all(
    lines: Mapping[str, ModelHistory], options: Options, store: str, *, is_strict: bool, is_alone: bool
) -> list[LoadedVersion]:
    """Loads what is deployed.

    Args:
        is_strict: Whether all of it has to be loaded; otherwise what was deployed and cannot be loaded is logged and left out.
        is_alone: Whether nothing else is served; then some of it has to be loaded.
    """
    loaded: list[LoadedVersion] = []
    failure: DyOrcError | None = None
    for model, line in lines.items():
        for name in line.loaded_names():
            version = line.versions[name]
            try:
                loaded.append(_restore(version, options))
            except DyOrcError as error:
                if is_strict or line.is_as_started:  # a target of the command has to be served
                    raise
                failure = failure or error
                _log.error(
                    "deployed_version_not_served", model=model, version=name, target=version.bundle.target, store=store,
                    error=str(error), remedy=f"dyorc undeploy {model}, or deploy it anew",
                )  # fmt: skip
    if failure is not None and is_alone and not loaded:
        raise DefinitionError(
            f"nothing that was deployed can be loaded: {failure}; to serve the targets as they are on disk, start with another "
            f"group (DYORC_CLUSTER__GROUP) or another store than {store}"
        ) from failure
    return loaded


def _log_restored(model: str, line: ModelHistory, served: Sequence[str], store: str) -> None:
    """Logs what is served in place of the code on disk, or beside it, and how to change that."""
    if line.is_as_started:
        return
    if served:
        target, remedy = line.origin, f"dyorc deploy {line.origin} serves the code on disk"
        if not line.origin:
            target, remedy = line.versions[served[0]].bundle.target, f"dyorc undeploy {model} ends it"
        _log.warning("deployed_versions_served", model=model, versions=served, target=target, store=store, remedy=remedy)
    elif line.origin and line.now is None:
        remedy = f"dyorc deploy {line.origin} brings it back"
        _log.warning("undeployed_model_not_served", model=model, target=line.origin, store=store, remedy=remedy)


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
    groups: dict[str, str],
    used_groups: Collection[str],
) -> LoadedVersion:
    """Returns the code on disk as a first version.

    Args:
        groups: The unique names of the groups of code on disk, by their own names. Those of this target are added.
        used_groups: Names that other groups have.
    """
    if workflow.name in record.lines:
        raise DefinitionError(f"{bundle.target} is {workflow.name!r}, and something else was deployed as that; undeploy it first")
    known = list(known)
    objects = {program: loaded for loaded in known for program in loaded.programs.values()}
    same = {program.name: program.name for program in programs_of(workflow) if program in objects}
    group_of = declared_groups(workflow)
    alone = {own: None if own in group_of else print_ for own, print_ in prints.items()}  # the targets' groups are their own
    names = names_for(alone, "1", known, {name for version in known for name in version.names.values()}, record.names())
    for group in group_of.values():
        if (
            group not in groups and group not in groups.values()
        ):  # a program of several targets has its group's unique name by now
            groups[group] = first_free((group, f"{group}@1"), used_groups)
    return first_version(workflow, bundle, prints, names | same, dict(groups), known)
