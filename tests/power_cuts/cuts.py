"""Records what processes do with their files, and cuts the power at many places of the record."""

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.power_cuts.disk import Disk
from tests.power_cuts.file_log import FileLog, Step, StepKind
from tests.power_cuts.marks import Expectations
from tests.power_cuts.recovery import DamagedError, wrong_after_cut

_MEMORY = Path("/dev/shm")
ROLES = ("left", "right", "files")
_LIE_EVERY = 5
_LONGEST_LIE = 400
"""Steps."""
_TIMEOUT_S = 120


@contextmanager
def work_folder() -> Iterator[Path]:
    """Makes a folder in memory for the block."""
    folder = tempfile.mkdtemp(prefix="dyorc-cuts-", dir=_MEMORY if _MEMORY.is_dir() else None)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder)


def record(mistake: str = "", *, num_jobs: int = 14, num_turns: int = 2, roles: Sequence[str] = ROLES) -> list[Step]:
    """Runs processes that use the store and other files, and returns what they did.

    Args:
        num_jobs: Of each client; other things are done as often.
        num_turns: How often all processes start and end.
        mistake: One of `MISTAKES`; empty: none.

    Raises:
        RuntimeError: If one fails.
    """
    with work_folder() as work:
        log = FileLog(work)
        for turn in range(num_turns):
            run_workload(log, roles, str(log.folder), num_jobs, turn, mistake)
        return log.steps()


def run_workload(log: FileLog, roles: Sequence[str], place: str, num_jobs: int, turn: int = 0, mistake: str = "") -> None:
    """Runs the processes of some roles to their end.

    Args:
        place: The folder or the Redis that they use.

    Raises:
        RuntimeError: If one fails.
    """
    program = [sys.executable, "-m", "tests.power_cuts.workload", place]
    options = [str(turn), str(num_jobs), *([mistake] if mistake else [])]
    _run_together([[*program, role, *options] for role in roles], {**os.environ, **log.environment})


def _run_together(commands: Sequence[Sequence[str]], environment: dict[str, str]) -> None:
    """Runs processes to their end; if one fails, the others wait for it and are killed."""
    processes = [subprocess.Popen(command, env=environment) for command in commands]
    end_s = time.monotonic() + _TIMEOUT_S
    try:
        while None in (codes := [process.poll() for process in processes]) and not any(codes):
            if time.monotonic() > end_s:
                raise RuntimeError(f"the processes that use the store run for more than {_TIMEOUT_S} s")
            with contextlib.suppress(subprocess.TimeoutExpired):
                processes[codes.index(None)].wait(0.1)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    if any(codes):
        raise RuntimeError(f"the processes that use the store ended with {codes}")


@dataclass(kw_only=True)
class Verdict:
    """What came of cuts.

    Attributes:
        wrong: For each cut after which something was wrong: its number, and what.
        num_lies: Cuts before which the disk had not done what it was asked to.
        num_damaged: After lies: the store said that it was damaged.
        wrong_after_lies: After lies: what was wrong, and nobody said.
    """

    num_cuts: int = 0
    wrong: dict[int, list[str]] = field(default_factory=dict)
    num_lies: int = 0
    num_damaged: int = 0
    wrong_after_lies: dict[int, list[str]] = field(default_factory=dict)


def try_cuts(
    steps: Sequence[Step],
    numbers: Sequence[int],
    seed: int,
    *,
    with_lies: bool = True,
    report: Callable[[Verdict], None] = lambda verdict: None,
) -> Verdict:
    """Cuts the power at random places, and looks what is there afterwards.

    Args:
        numbers: Of the cuts; the same number and seed are the same cut.
        report: Called after each cut.
    """
    places = sorted((random.Random(f"{seed}/{number}").randrange(len(steps) + 1), number) for number in numbers)
    verdict, disk, expected, at = Verdict(), Disk(), Expectations(), 0
    with work_folder() as work:
        for place, number in places:
            for step in steps[at:place]:
                disk.do(step)
                if step.kind is StepKind.MARK:
                    expected.add(step.data)
            at = place
            chance = random.Random(f"{seed}/{number}/cut")
            lies = with_lies and number % _LIE_EVERY == _LIE_EVERY - 1
            folder = work / str(number)
            folder.mkdir()
            (_after_lies(steps, place, chance) if lies else disk).cut(chance, folder)
            _judge(verdict, number, folder, expected, lies)
            shutil.rmtree(folder)
            report(verdict)
    return verdict


def _after_lies(steps: Sequence[Step], place: int, chance: random.Random) -> Disk:
    """Returns a disk that has not done the last synchronizations."""
    disk, honest_until = Disk(), max(0, place - chance.randrange(1, _LONGEST_LIE))
    for number, step in enumerate(steps[:place]):
        disk.honours_syncs = number < honest_until
        disk.do(step)
    return disk


def _judge(verdict: Verdict, number: int, folder: Path, expected: Expectations, lies: bool) -> None:
    verdict.num_cuts += 1
    verdict.num_lies += lies
    try:
        wrong, is_damaged = wrong_after_cut(folder, expected, may_be_lost=lies), False
    except DamagedError as error:
        wrong, is_damaged = [str(error)], True
    if lies and is_damaged:
        verdict.num_damaged += 1
    elif wrong:
        (verdict.wrong_after_lies if lies else verdict.wrong)[number] = wrong
