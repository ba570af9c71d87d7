"""Checks of the machine: processors, memory, descriptors, processes, clock, the folder for temporary files."""

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from dyorc.doctor.finding import Finding, Subject, error, mebibytes, ok, warning
from dyorc.system.owned_folder import orphans
from dyorc.system.processors import memory_limit_bytes, num_by_affinity, num_processors, processor_quota

_FEW_DESCRIPTORS = 4096
_FEW_PROCESSES = 1024
_LITTLE_MEMORY = 2 * 2**30
_LITTLE_SPACE = 2**30
_FIRST_PLAUSIBLE_S = 1_750_000_000
"""June 2025, before the first version: a clock that says less is not set."""


def check_processors(_: Subject) -> Iterator[Finding]:
    """Says how many processors may be used, and whether libraries would start more threads than that."""
    quota = processor_quota()
    limits = f"{os.cpu_count()} in the machine, {num_by_affinity()} by affinity"
    if quota is not None:
        limits += f", {quota:g} by the container's quota"
    yield ok(f"{num_processors()} processors may be used ({limits})")
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads) > num_processors():
        yield warning(
            f"OMP_NUM_THREADS is {threads}, more threads than the {num_processors()} processors",
            "unset OMP_NUM_THREADS: DyOrc gives each program its share of the processors",
        )


def check_memory(_: Subject) -> Iterator[Finding]:
    """Says how much memory there is, and what the container allows."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = memory_limit_bytes()
    usable = total if limit is None else min(total, limit)
    text = f"{mebibytes(usable)} of memory"
    if usable < total:
        text += f" by the container's limit, of {mebibytes(total)}"
    if usable < _LITTLE_MEMORY:
        yield warning(
            text, "a cell needs 200 MiB besides the models, Ray 1 GiB: give the container more, or serve with --in-process"
        )
    else:
        yield ok(text)


def check_descriptors(_: Subject) -> Iterator[Finding]:
    """Says how many files and connections a server may have open. A server raises the soft limit to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{_limit(hard)} open files and connections per process (now {_limit(soft)}; servers raise it)"
    if hard != resource.RLIM_INFINITY and hard < _FEW_DESCRIPTORS:
        yield warning(
            text, "raise the hard limit: `ulimit -Hn 65536` as root, LimitNOFILE= in systemd, --ulimit nofile= in Docker"
        )
    else:
        yield ok(text)


def check_processes(_: Subject) -> Iterator[Finding]:
    """Says how many processes and threads this user may have."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and soft < _FEW_PROCESSES:
        yield warning(
            f"{soft} processes and threads for this user", "raise it with `ulimit -u 4096`: Ray alone starts some hundred threads"
        )
    else:
        yield ok(f"{_limit(soft)} processes and threads for this user")


def check_clock(_: Subject) -> Iterator[Finding]:
    """Looks whether the clock is set: leases of jobs, certificates and traces depend on it."""
    if time.time() < _FIRST_PLAUSIBLE_S:
        yield error(f"the clock says {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC", "set the clock, for example by NTP")
    else:
        yield ok(f"the clock says {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC")


def check_temporary_folder(_: Subject) -> Iterator[Finding]:
    """Looks whether the folder for temporary files takes files, and what killed servers have left there."""
    try:
        folder = Path(tempfile.gettempdir())
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x" * 4096)
            file.flush()
    except OSError as problem:
        yield error(f"no temporary file can be written: {problem.strerror}", "set TMPDIR to a folder that takes files")
        return
    free = shutil.disk_usage(folder).free
    if free < _LITTLE_SPACE:
        yield warning(
            f"{folder} has {mebibytes(free)} left", "free some space, or set TMPDIR to a larger folder: Ray's logs lie there"
        )
    else:
        yield ok(f"{folder} takes files, {mebibytes(free)} are left")
    left = orphans("dyorc-")
    if left:
        yield ok(f"{len(left)} folders of killed servers in {folder}: the next server removes them")


def _limit(number: int) -> str:
    return "any number of" if number == resource.RLIM_INFINITY else str(number)
