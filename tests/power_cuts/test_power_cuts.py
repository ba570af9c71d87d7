"""After a power cut at any moment, what was acknowledged is there; mistakes in what makes it so are noticed."""

import random
import shutil
from pathlib import Path

import pytest

from tests.power_cuts.cuts import record, try_cuts
from tests.power_cuts.disk import Disk
from tests.power_cuts.file_log import Step, StepKind
from tests.power_cuts.mistakes import MISTAKES_OF_DISKS, MISTAKES_OF_RECOVERY
from tests.power_cuts.redis_cuts import record_redis, try_redis_cuts
from tests.power_cuts.trials import Trial, trials

_NUM_CUTS, _NUM_CUTS_OF_MISTAKES, _NUM_CUTS_OF_REDIS, _SEED = 60, 200, 8, 1


@pytest.fixture(scope="module")
def compiler() -> None:
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc: NO POWER CUT WAS TRIED")


@pytest.fixture(scope="module")
def steps(compiler: None) -> list[Step]:
    return record(num_jobs=5)


def test_after_each_cut_what_was_acknowledged_is_there(steps: list[Step]) -> None:
    verdict = try_cuts(steps, range(_NUM_CUTS), _SEED, with_lies=False)
    assert verdict.wrong == {}
    assert verdict.num_cuts == _NUM_CUTS


def test_after_lies_of_the_disk_most_stores_open_or_say_that_they_are_damaged(steps: list[Step]) -> None:
    verdict = try_cuts(steps, range(4, 100, 5), _SEED)
    assert verdict.num_lies == verdict.num_cuts == 20
    assert len(verdict.wrong_after_lies) < verdict.num_lies / 4


def test_a_number_is_always_the_same_cut(steps: list[Step], tmp_path: Path) -> None:
    disk, trees = Disk(), []
    for step in steps[: len(steps) // 2]:
        disk.do(step)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        disk.cut(random.Random(5), tmp_path / name)
        files = {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*") if path.is_file()}
        trees.append(files)
    assert trees[0] == trees[1]
    assert trees[0]


@pytest.mark.usefixtures("compiler")
def test_redis_has_what_it_answered_if_it_synchronizes_always() -> None:
    start, steps = record_redis("always", num_jobs=3)
    assert try_redis_cuts(start, steps, _NUM_CUTS_OF_REDIS, _SEED, may_be_lost=False).wrong == {}


@pytest.mark.usefixtures("compiler")
def test_redis_loses_answers_but_mixes_nothing_if_it_synchronizes_every_second() -> None:
    start, steps = record_redis("everysec", num_jobs=3)
    assert try_redis_cuts(start, steps, _NUM_CUTS_OF_REDIS, _SEED, may_be_lost=True).wrong == {}
    assert try_redis_cuts(start, steps, _NUM_CUTS_OF_REDIS, _SEED, may_be_lost=False).wrong


@pytest.mark.parametrize("mistake", [*MISTAKES_OF_DISKS, *MISTAKES_OF_RECOVERY])
def test_a_mistake_on_the_disk_or_at_the_start_is_noticed(steps: list[Step], mistake: str) -> None:
    trial = Trial(mistake=mistake, steps=steps)
    assert trial.first_noticed(_NUM_CUTS_OF_MISTAKES, _SEED) is not None


@pytest.mark.parametrize("mistake", ["acknowledged_before_commit", "commits_of_processes_only", "names_not_synchronized"])
@pytest.mark.usefixtures("compiler")
def test_a_mistake_in_the_code_is_noticed(mistake: str) -> None:
    assert trials()[mistake].first_noticed(_NUM_CUTS_OF_MISTAKES, _SEED) is not None


def test_a_file_has_what_was_synchronized_and_any_sectors_of_the_rest(tmp_path: Path) -> None:
    disk = Disk()
    durable, new = b"a" * 1024, b"b" * 1024
    disk.do(Step(StepKind.CREATE, 1, 0, "file", "", b""))
    disk.do(Step(StepKind.SYNC, 0, 0, ".", "", b""))
    disk.do(Step(StepKind.WRITE, 1, 0, "", "", durable))
    disk.do(Step(StepKind.SYNC, 1, 0, "file", "", b""))
    disk.do(Step(StepKind.WRITE, 1, 0, "", "", new))
    seen = set[bytes]()
    for seed in range(200):
        (folder := tmp_path / str(seed)).mkdir()
        disk.cut(random.Random(seed), folder)
        seen.add((folder / "file").read_bytes())
    assert seen == {durable, new, durable[:512] + new[:512], new[:512] + durable[:512]}


def test_a_file_without_a_synchronized_name_may_be_gone(tmp_path: Path) -> None:
    disk = Disk()
    disk.do(Step(StepKind.CREATE, 1, 0, "file", "", b""))
    disk.do(Step(StepKind.WRITE, 1, 0, "", "", b"x"))
    disk.do(Step(StepKind.SYNC, 1, 0, "file", "", b""))
    seen = set[bool]()
    for seed in range(50):
        (folder := tmp_path / str(seed)).mkdir()
        disk.cut(random.Random(seed), folder)
        seen.add((folder / "file").exists())
    assert seen == {True, False}
