"""Versions as they are loaded in this process: their modules, their workflow, and their programs under unique names."""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count
from typing import Any

from dyorc.authoring.bundle_imports import BundleImporter, new_package
from dyorc.authoring.bundles import Bundle, shortened
from dyorc.authoring.fingerprints import Fingerprints
from dyorc.authoring.loading import programs_of
from dyorc.authoring.overrides import override
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow, as_model, of_program
from dyorc.deployment.state import Version
from dyorc.models.offers import FIRST_VERSION, ModelKey, VersionTraffic
from dyorc.models.registry import ServedModel
from dyorc.replica.assignment import ProgramSource
from dyorc.replica.user_code import import_outside_of_loop, start_folder

NO_GROUPS: Mapping[str, str] = {}


@dataclass(eq=False)
class LoadedVersion:
    """A version whose code is imported here.

    Attributes:
        model: The name of its workflow or program.
        version: Its version.
        workflow: What a request runs.
        programs: Its programs by their own names; each object has its unique name among all versions.
        prints: Fingerprints of its programs, which equal programs share, by their own names; None where they cannot be computed.
        importer: Holds its modules; None: they have their own names, since the server was started with them.
        bundle: Its code.
        codes: See `Version`.
        groups: See `Version`.
    """

    model: str
    version: str
    workflow: Workflow
    programs: Mapping[str, Program]
    prints: Mapping[str, str | None]
    importer: BundleImporter | None
    bundle: Bundle
    codes: Mapping[str, str]
    groups: Mapping[str, str]

    @property
    def key(self) -> ModelKey:
        return ModelKey(self.model, self.version)

    @property
    def as_version(self) -> Version:
        """The same as a value, from which another process can load it."""
        return Version(
            model=self.model, version=self.version, bundle=self.bundle, names=self.names, codes=self.codes, groups=self.groups
        )  # fmt: skip

    @property
    def names(self) -> dict[str, str]:
        """Its programs' unique names among all versions, by their own names."""
        return {own: program.name for own, program in self.programs.items()}

    @cached_property
    def parts(self) -> list[ServedModel]:
        """The models that come with it: first its own, then those of its programs."""
        programs = [
            ServedModel(
                ModelKey(own, self.version), replace(of_program(program), code=shortened(self.codes[own])), is_program=True
            )
            for own, program in self.programs.items()
            if program.is_model
        ]
        if self.model in self.programs:
            return sorted(programs, key=lambda part: part.key != self.key)
        return [ServedModel(self.key, self.workflow), *programs]

    def with_traffic(self, traffic: VersionTraffic) -> list[ServedModel]:
        """Returns its models when it gets these requests."""
        first, *others = self.parts
        return [replace(first, traffic=traffic), *others]

    def source(self, program: Program) -> ProgramSource:
        """Returns where the replicas of one of its programs find it."""
        own = next(name for name, candidate in self.programs.items() if candidate is program)
        return ProgramSource(
            folder=start_folder(), target=self.bundle.target, program=own, overrides=program.overrides, bundle=self.bundle,
            served_as=program.name, code=self.codes[own],
        )  # fmt: skip

    def unload(self) -> None:
        """Forgets its modules."""
        if self.importer is not None:
            self.importer.unload()


def first_version(
    workflow: Workflow | Program,
    bundle: Bundle,
    prints: Mapping[str, str | None],
    names: Mapping[str, str],
    groups: Mapping[str, str],
    known: Iterable[LoadedVersion],
) -> LoadedVersion:
    """Returns the first version of code that was imported under its own module names.

    Args:
        groups: The unique names of its programs' groups, by their own names.
        known: Versions whose programs may have its names.
    """
    codes = codes_for(names, bundle, known)
    version = Version(model=workflow.name, version=FIRST_VERSION, bundle=bundle, names=names, codes=codes, groups=groups)
    return rename_programs(workflow, version, prints, None)


def load_bundle(bundle: Bundle, overrides: Mapping[str, Mapping[str, Any]]) -> tuple[Workflow | Program, BundleImporter]:
    """Imports code below a separate package, as `load_with` does, and returns what has imported it, too. If that fails, nothing
    of it is left."""
    importer = importer_of(bundle)
    try:
        return load_with(importer, overrides), importer
    except BaseException:
        importer.unload()
        raise


def importer_of(bundle: Bundle) -> BundleImporter:
    """Returns what imports code below a package that nothing else has."""
    return BundleImporter(bundle, new_package())


def load_with(importer: BundleImporter, overrides: Mapping[str, Mapping[str, Any]]) -> Workflow | Program:
    """Imports code. Its programs get the settings' options for them. If this raises, the importer is to be unloaded.

    Raises:
        DefinitionError: If it cannot be imported, cannot be a model, or cannot have such options.
    """
    target = import_outside_of_loop(importer.load)
    as_model(target)
    for program in programs_of(target):
        if (changes := overrides.get(program.name)) is not None:
            override(program, changes)
    return target


def fingerprints_of(bundle: Bundle, importer: BundleImporter | None) -> Fingerprints:
    """Returns the fingerprints of imported code."""
    if importer is None:
        return Fingerprints(bundle, sys.modules.get, str)
    return Fingerprints(bundle, importer.module, importer.own_name)


def fingerprints_of_target(target: Workflow | Program, fingerprints: Fingerprints) -> dict[str, str | None]:
    """Returns the fingerprints of a target's programs, by name."""
    return {program.name: fingerprints.of(program, program.name) for program in programs_of(target)}


def rename_programs(
    target: Workflow | Program, version: Version, prints: Mapping[str, str | None], importer: BundleImporter | None
) -> LoadedVersion:
    """Gives the programs of a version, and their groups, their unique names among all versions."""
    programs = {program.name: program for program in programs_of(target)}
    for own, program in programs.items():
        object.__setattr__(program, "name", version.names[own])  # the user's workflows hold these objects
        object.__setattr__(program, "own_name", own)
        group = version.groups.get(program.options.group or "")
        if group is not None:
            object.__setattr__(program, "options", program.options.changed(group=group))
    if isinstance(target, Program):
        workflow = replace(of_program(target), code=version.code)
    else:
        workflow = replace(target, name=label(version.model, version.version), code=version.code)
    codes = {own: version.codes.get(own) or version.bundle.digest for own in programs}
    return LoadedVersion(
        version.model, version.version, workflow, programs, prints, importer, version.bundle, codes, version.groups
    )


def label(model: str, version: str) -> str:
    """Returns the name of a version of a workflow in metrics and records."""
    return model if version == FIRST_VERSION else f"{model}@{version}"


def names_for(
    prints: Mapping[str, str | None],
    version: str,
    known: Iterable[LoadedVersion],
    is_shared: Collection[str],
    used: Collection[str],
    group_of: Mapping[str, str] = NO_GROUPS,
) -> dict[str, str]:
    """Names the programs of a new version: the name of an identical program, or an unused name.

    Programs of a group hand residents to each other in their process. So identical ones are used only if one process has all of
    them: the others could not join it.

    Args:
        prints: Fingerprints of its programs, by their own names.
        known: Versions whose programs may be used instead.
        is_shared: Names of the programs that may be used.
        used: Names that programs have or had.
        group_of: The group of each program that declares one, by its own name.
    """
    same: dict[tuple[str, str], dict[str, str]] = {}  # the names of identical programs, by group
    for other in known:
        for own, print_ in other.prints.items():
            program = other.programs[own]
            if print_ is not None and program.name in is_shared:
                same.setdefault((own, print_), {})[program.options.group or ""] = program.name
    shared: dict[str, str] = {}
    for members in _by_group(prints, group_of):
        identical = [same.get((own, prints[own] or ""), {}) for own in members]
        for place in identical[0]:
            if all(place in names for names in identical):
                shared |= {own: names[place] for own, names in zip(members, identical, strict=True)}
    return {own: shared.get(own) or first_free((own, f"{own}@{version}"), used) for own in prints}


def _by_group(programs: Iterable[str], group_of: Mapping[str, str]) -> list[list[str]]:
    """Returns programs as the groups that they declare; most are alone."""
    groups: dict[tuple[bool, str], list[str]] = {}
    for own in programs:
        groups.setdefault((own in group_of, group_of.get(own, own)), []).append(own)
    return list(groups.values())


def groups_for(
    names: Mapping[str, str],
    version: str,
    known: Iterable[LoadedVersion],
    used: Collection[str],
    group_of: Mapping[str, str],
) -> dict[str, str]:
    """Names the groups of a new version, by their names in its code: the group of the programs that it shares, or an unused name.

    A process that runs gets no further programs, so the groups of two versions are different processes.

    Args:
        names: The unique names of its programs, by their own names.
        known: Versions whose programs may have these names.
        used: Names that groups have or had.
        group_of: The group of each program that declares one, by its own name.
    """
    groups = {program.name: program.options.group for other in known for program in other.programs.values()}
    shared = {group: groups.get(names[own]) for own, group in group_of.items()}
    return {group: place or first_free((group, f"{group}@{version}"), used) for group, place in shared.items()}


def declared_groups(target: Workflow | Program) -> dict[str, str]:
    """Returns the group of each program of a target that declares one, by their own names."""
    return {program.name: program.options.group for program in programs_of(target) if program.options.group is not None}


def codes_for(names: Mapping[str, str], bundle: Bundle, known: Iterable[LoadedVersion]) -> dict[str, str]:
    """Returns a code digest for each program of a new version; a shared program keeps its digest.

    Args:
        names: The programs' unique names, by their own names.
        known: Versions whose programs may have these names.
    """
    codes = {version.programs[own].name: code for version in known for own, code in version.codes.items()}
    digest = bundle.digest
    return {own: codes.get(name, digest) for own, name in names.items()}


def first_free(names: Sequence[str], used: Collection[str]) -> str:
    """Returns the first name that is not used: one of these, or the last one with a number."""
    more = (f"{names[-1]}.{number}" for number in count(2))
    return next(name for name in chain(names, more) if name not in used)
