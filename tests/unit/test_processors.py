"""What a process may use of the machine, inside real control groups."""

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Generator
from pathlib import Path

import pytest

from dyorc.system.processors import memory_limit_bytes, num_by_affinity, num_processors, processor_quota

_PROGRAM = """
import os, sys
from pathlib import Path
for group in sys.argv[1:]:
    (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
from dyorc.system.processors import memory_limit_bytes, num_processors, processor_quota
print(num_processors(), processor_quota(), memory_limit_bytes())
"""


@contextlib.contextmanager
def _group(root: str, files: dict[str, str]) -> Generator[Path]:
    """Makes a control group of version 1 below a controller's own root."""
    folder = Path(root) / f"dyorc-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made in {root}: {error}")
    try:
        for name, text in files.items():
            (folder / name).write_text(text)
        yield folder
    finally:
        folder.rmdir()


def _measured(*groups: Path) -> str:
    done = subprocess.run([sys.executable, "-c", _PROGRAM, *map(str, groups)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_quota_of_half_a_processor_leaves_one_and_of_one_and_a_half_two() -> None:
    halves = {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"}
    with _group("/sys/fs/cgroup/cpu", halves) as half:
        assert _measured(half).split()[:2] == ["1", "0.5"]
        (half / "cpu.cfs_quota_us").write_text("150000")
        assert _measured(half).split()[:2] == [str(min(2, num_by_affinity())), "1.5"]


def test_a_limit_of_memory_is_seen() -> None:
    with _group("/sys/fs/cgroup/memory", {"memory.limit_in_bytes": str(300 * 2**20)}) as group:
        assert _measured(group).split()[2] == str(300 * 2**20)


def test_the_affinity_is_respected() -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux can say")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert num_processors() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_this_process_has_no_quota_of_nothing() -> None:
    quota, limit = processor_quota(), memory_limit_bytes()
    assert quota is None or quota > 0
    assert limit is None or limit > 0
