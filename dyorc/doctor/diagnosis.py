"""Runs all checks. One that raises is a finding."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from dyorc.doctor.accelerators import check_gpus, check_ray
from dyorc.doctor.finding import Finding, Subject, error
from dyorc.doctor.libraries import check_extras, check_libraries, check_versions
from dyorc.doctor.machine import (
    check_clock,
    check_descriptors,
    check_memory,
    check_processes,
    check_processors,
    check_temporary_folder,
)
from dyorc.doctor.network import check_loopback, check_ports
from dyorc.doctor.server import check_certificate, check_server
from dyorc.doctor.settings import check_settings, check_store
from dyorc.doctor.shared_memory import check_anonymous_memory, check_folder, check_leftovers

Check: TypeAlias = Callable[[Subject], Iterator[Finding]]

CHECKS: Mapping[str, tuple[Check, ...]] = MappingProxyType(
    {
        "versions": (check_versions, check_libraries),
        "extras": (check_extras,),
        "machine": (check_processors, check_memory, check_descriptors, check_processes, check_clock, check_temporary_folder),
        "shared memory": (check_folder, check_leftovers, check_anonymous_memory),
        "settings": (check_settings, check_store),
        "network": (check_loopback, check_ports),
        "Ray": (check_ray,),
        "GPUs": (check_gpus,),
        "server": (check_server, check_certificate),
    }
)
"""All checks, by what they look at, in the order in which they are shown."""


def diagnose(subject: Subject) -> Iterator[tuple[str, Finding]]:
    """Runs the checks one after another.

    Yields:
        What was looked at, a key of `CHECKS`, and a finding.
    """
    for area, checks in CHECKS.items():
        for check in checks:
            yield from ((area, finding) for finding in _findings(check, subject))


def _findings(check: Check, subject: Subject) -> Iterator[Finding]:
    try:
        yield from check(subject)
    except Exception as problem:
        name = check.__name__.removeprefix("check_").replace("_", " ")
        yield error(
            f"the check of {name} failed: {type(problem).__name__}: {problem}",
            "report it, with this output: it is a bug of dyorc doctor",
        )
