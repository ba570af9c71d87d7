"""Checks of versions: DyOrc, Python, the system, libraries and extras. Reads their metadata, imports none of them."""

import platform
import sys
from collections.abc import Iterator
from importlib import metadata, util

from packaging.requirements import InvalidRequirement, Requirement

from dyorc.doctor.finding import Finding, Subject, error, ok, warning
from dyorc.system.extras import command_for
from dyorc.version import DISTRIBUTION, version

_EXTRAS = {
    "ray": "replicas on Ray",
    "torch": "programs of torch",
    "redis": "jobs and services on Redis",
    "planner": "`dyorc plan`",
    "traces": "traces by OpenTelemetry",
    "profile": "`dyorc profile`",
}
"""The extras that users choose, and what each is for. The others are of examples and of developers."""


def check_versions(_: Subject) -> Iterator[Finding]:
    """Says which DyOrc, Python and system this is, and whether the engine is compiled."""
    yield ok(f"DyOrc {version()}, {platform.python_implementation()} {platform.python_version()} in {sys.prefix}")
    yield ok(f"{platform.system()} {platform.release()}, {platform.machine()}")
    if sys.platform != "linux":
        yield warning(
            f"the system is {sys.platform}, and DyOrc is tested on Linux",
            "use it for trying things out; serve on Linux, or in a container",
        )
    spec = util.find_spec("dyorc.engine.engine")
    is_compiled = spec is not None and spec.origin is not None and not spec.origin.endswith(".py")
    yield ok(
        f"the engine is {'compiled' if is_compiled else 'pure Python, which is enough below some thousand requests a second'}"
    )


def check_libraries(_: Subject) -> Iterator[Finding]:
    """Compares what is installed with what DyOrc needs."""
    needed = [requirement for requirement in _requirements() if _applies(requirement, "")]
    problems = [problem for requirement in needed for problem in _problems(requirement)]
    yield from (error(problem, f"pip install --upgrade {DISTRIBUTION}") for problem in problems)
    if not problems:
        yield ok(f"all {len(needed)} libraries of {DISTRIBUTION} are there, in versions that fit")


def check_extras(_: Subject) -> Iterator[Finding]:
    """Says which extras are there, and what installs those missing. A version that does not fit is an error."""
    for extra, purpose in _EXTRAS.items():
        needed = [
            requirement for requirement in _requirements() if not _applies(requirement, "") and _applies(requirement, extra)
        ]
        install = command_for(extra)
        missing = [requirement.name for requirement in needed if installed_version(requirement.name) is None]
        clashes = [problem for requirement in needed if requirement.name not in missing for problem in _problems(requirement)]
        yield from (error(f"{extra}: {clash}", install) for clash in clashes)
        if missing:
            yield ok(f"{extra} is not installed ({', '.join(missing)}); for {purpose}: {install}")
        elif not clashes:
            yield ok(
                f"{extra}: {', '.join(f'{requirement.name} {installed_version(requirement.name)}' for requirement in needed)}"
            )


def _requirements() -> Iterator[Requirement]:
    for text in metadata.requires(DISTRIBUTION) or ():
        try:
            yield Requirement(text)
        except InvalidRequirement:
            continue  # written by a newer tool; pip has read it


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _problems(requirement: Requirement) -> Iterator[str]:
    installed = installed_version(requirement.name)
    if installed is None:
        yield f"{requirement.name} is missing"
    elif not requirement.specifier.contains(installed, prereleases=True):
        yield f"{requirement.name} is {installed}, expected {requirement.specifier}"


def installed_version(name: str) -> str | None:
    """Returns the version of a library; None if it is missing, or its metadata are."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
