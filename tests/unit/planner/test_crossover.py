"""Merged jobs: the least period is the formula's, plans come apart into phases, and turns follow each other in one order."""

import itertools
import os
import re
import signal
import sys
import threading
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from benchmarks.papers.crossover import formulas
from benchmarks.papers.table import Relation
from dyorc.cli.main import _app as app  # pyright: ignore[reportPrivateUsage]
from dyorc.errors import PlanError
from dyorc.planner.cluster import even_cluster
from dyorc.planner.plan.rewrites import communicate_early
from dyorc.planner.planners import PLANNERS
from dyorc.planner.planners.crossover.merge import MergeCandidate, Resource, merge_jobs, phases_of, schedule_jobs
from dyorc.planner.planners.crossover.merged_plans_file import read_merged, write_merged
from dyorc.planner.runtime.job_turns import JobTurns, PhaseClaim, TurnTaker
from dyorc.planner.runtime.shared_devices import DeviceSharing, SharedDevice
from dyorc.planner.simulate import simulate
from tests.deadlines import TIMEOUT_S, wait_until
from tests.unit.planner.examples import example


def _spans(compute: int, network: int) -> list[tuple[Resource, int]]:
    return [(Resource.DEVICES, compute), (Resource.NETWORK, network)]


@pytest.mark.parametrize(("compute", "network"), [(20, 1), (10, 1), (5, 1), (2, 1), (1, 1), (2, 3), (1, 2)])
def test_two_equal_jobs_are_as_much_faster_as_the_formula_says(compute: int, network: int) -> None:
    found = schedule_jobs([_spans(compute, network)] * 2)
    ratio = Fraction(network, compute)
    assert Fraction(2 * (compute + network), found.repetend.period) == min(1 + ratio, 1 + 1 / ratio)
    assert found.is_optimal
    assert found.repetend.unroll(5).faults() == []


def test_of_more_jobs_and_unequal_ones_the_busiest_resource_or_the_longest_job_decides() -> None:
    for jobs, period in [
        ([_spans(1, 1)] * 3, 3),
        ([_spans(3, 1), _spans(1, 3)], 4),
        ([_spans(8, 8), _spans(1, 1)], 16),  # no step begins before the job's last has ended
        ([_spans(3, 2), _spans(2, 1), _spans(4, 3)], 9),
    ]:
        found = schedule_jobs(jobs)
        assert (found.repetend.period, found.is_optimal, found.repetend.unroll(5).faults()) == (period, True, [])


def test_the_table_s_formulas_are_exact() -> None:
    rows = list(formulas())
    assert len(rows) == 12
    assert {(row.relation, row.note.partition("; ")[2]) for row in rows} == {(Relation.AGREES, "no period is shorter")}


def test_a_plan_comes_apart_where_it_turns_from_computing_to_communicating() -> None:
    program, cluster = example("gpt").program, even_cluster(2, flops_per_s=1e9, bytes_per_s=1e8)
    plan = PLANNERS["dp_even"](program, cluster)
    phases = phases_of(plan, program, cluster)
    assert [phase.resource for phase in phases] == [Resource.DEVICES, Resource.NETWORK]
    assert phases[0].begins == 0
    alone_s = simulate(plan, program, cluster, overlap=False).total_s
    assert sum(phase.seconds for phase in phases) == pytest.approx(alone_s, rel=0.05)
    many = phases_of(communicate_early(plan), program, cluster)
    assert len(many) > 2
    assert [phase.begins for phase in many] == sorted({phase.begins for phase in many})
    assert all(one.resource is not other.resource for one, other in itertools.pairwise(many))
    found = merge_jobs([MergeCandidate(name=name, plan=plan, program=program) for name in "ab"], cluster)
    assert found.alone_s == pytest.approx(2 * alone_s, rel=0.05)
    assert 1.0 < found.speedup <= 2.0


def test_what_cannot_be_merged_is_refused() -> None:
    program, cluster = example("gpt").program, even_cluster(4)
    plans = [PLANNERS["dp_even"](program, even_cluster(num_ranks)) for num_ranks in (2, 4)]
    two, four = (MergeCandidate(name=f"{plan.num_ranks}.json", plan=plan, program=program) for plan in plans)
    with pytest.raises(PlanError, match="merging takes at least two plans, and this is 1"):
        merge_jobs([two], cluster)
    with pytest.raises(PlanError, match=r"have the same number of ranks: 2\.json needs 2, 4\.json needs 4"):
        merge_jobs([two, four], cluster)
    with pytest.raises(PlanError, match=r" has 2 ranks: 4\.json needs 4, 4\.json needs 4"):
        merge_jobs([four, four], even_cluster(2))
    small = even_cluster(4, memory_bytes=int(1.5 * max(simulate(four.plan, program, cluster, overlap=False).peak_bytes)))
    with pytest.raises(PlanError, match=r"together .*: rank 0 \(.* on .*\) needs [\d,]+ \+ [\d,]+ bytes and has [\d,]+"):
        merge_jobs([four] * 2, small)


# -- the command line ----------------------------------------------------------------------------------------------------------

_MODEL = """
from dyorc.planner.models import gpt

def make():
    return gpt(layers=1, hidden=16, vocabulary=32, sequence=8, batch=8)
"""
_CLUSTER = """
name = "two"
links = [{ between = ["left", "right"], bytes_per_s = 1e7 }]
[[machines]]
name = "left"
devices = [{ name = "one", flops_per_s = 1e9, memory_bytes = 1000000000 }]
[[machines]]
name = "right"
devices = [{ name = "other", flops_per_s = 1e9, memory_bytes = 1000000000 }]
"""


def _run(*arguments: object) -> Result:
    runner = CliRunner(env={"COLUMNS": "300", "NO_COLOR": "1"})
    return runner.invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("merged")
    (path / "model.py").write_text(_MODEL)
    (path / "cluster.toml").write_text(_CLUSTER)
    plan = path / "plan.json"
    _run("plan", f"{path}/model.py:make", "--cluster", path / "cluster.toml", "--planner", "dp_even", "-o", plan)
    merged_plan = path / "merged.json"
    made = _run("plan", "merge", plan, plan, "--cluster", path / "cluster.toml", "-o", merged_plan)
    pattern = r"merged\.json: one step of each job in [\d.]+ ms, [\d.]+ ms one after the other: [12]\.\d\d times as fast"
    assert re.search(pattern, made.stdout), made.stdout
    return path


def test_merged_plans_are_shown_over_time_and_come_back_from_their_file(folder: Path) -> None:
    found = read_merged(folder / "merged.json")
    shown = _run("plan", "show", folder / "merged.json").stdout
    assert "2 jobs on 2 ranks: one step of each job in" in shown
    rows = dict(re.findall(r"^ +(devices|network) \|(\S+)\| \.\.\.$", shown, re.MULTILINE))
    assert set(rows) == {"devices", "network"}
    for row in rows.values():
        assert set("AB") <= set(row) <= set("AB.|")
        one, other = row.split("|")
        assert (one, len(one)) == (other, 40)
    together = sum(a != "." and b != "." for a, b in zip(rows["devices"], rows["network"], strict=True))
    assert together > 2  # more than the marks between periods
    assert not any(a == b != "|" and a != "." for a, b in zip(rows["devices"], rows["network"], strict=True))
    assert [job.name for job in found.jobs] == ["plan.json", "plan.json"]
    write_merged(found, folder / "again.json")
    assert (folder / "again.json").read_bytes() == (folder / "merged.json").read_bytes()


def test_errors_of_merged_plans_name_what_is_wrong(folder: Path) -> None:
    merged_plan, plan, cluster = folder / "merged.json", folder / "plan.json", folder / "cluster.toml"
    with pytest.raises(PlanError, match=r"merging takes at least two plans, and this is 1"):
        _run("plan", "merge", plan, "--cluster", cluster, "-o", folder / "new.json")
    with pytest.raises(PlanError, match=r"merged\.json: expected a single plan, .*, and found format 'dyorc-merged-plans'"):
        _run("plan", "merge", plan, merged_plan, "--cluster", cluster, "-o", folder / "new.json")
    with pytest.raises(PlanError, match=r"nowhere/new\.json cannot be written: there is no folder"):
        _run("plan", "merge", plan, plan, "--cluster", cluster, "-o", folder / "nowhere" / "new.json")
    with pytest.raises(PlanError, match=r"--cluster is for a single plan, and .*merged\.json holds merged ones"):
        _run("plan", "show", merged_plan, "--cluster", cluster)
    with pytest.raises(PlanError, match=r"--model is for a single plan, and .*merged\.json holds merged ones"):
        _run("plan", "run", merged_plan, "--model", "model.py:make")
    with pytest.raises(PlanError, match=r"--steps is for merged plans, and .*plan\.json holds one plan"):
        _run("plan", "run", plan, "--steps", 3)
    changed, text = folder / "changed.json", merged_plan.read_text()
    changed.write_text(text.replace('"period":', '"period":1', 1))
    with pytest.raises(PlanError, match=r"changed\.json: the merged plans were changed after they were written"):
        _run("plan", "show", changed)
    changed.write_text(text.replace('"version":1', '"version":9', 1))
    with pytest.raises(
        PlanError, match=r"changed\.json: expected format .*, version 1, and found .*, version 9: merge the plans"
    ):
        _run("plan", "run", changed)
    changed.write_text(text.replace('"jobs":', '"tasks":', 1))
    with pytest.raises(PlanError, match=r"changed\.json: these are no merged plans, or only a part of them: .*tasks"):
        _run("plan", "show", changed)
    assert not (folder / "new.json").exists()


# -- turns ---------------------------------------------------------------------------------------------------------------------

_CLAIMS = tuple(
    (
        PhaseClaim(begins=0, resource=Resource.DEVICES, place=job, delay=0),
        PhaseClaim(begins=10, resource=Resource.NETWORK, place=1 - job, delay=job),
    )
    for job in (0, 1)
)
"""Job 0 computes and communicates first; job 1 communicates while job 0 computes its next step."""


def _turns(folder: Path, job: int, num_steps: int, lease_s: float = TIMEOUT_S) -> JobTurns:
    return JobTurns(folder=str(folder), job=job, claims=_CLAIMS, num_steps=num_steps, lease_s=lease_s)


def test_jobs_take_turns_and_go_on_alone_when_one_has_done_its_steps(tmp_path: Path) -> None:
    order: list[str] = []
    takers = [TurnTaker(_turns(tmp_path, job, steps), rank=0) for job, steps in ((0, 3), (1, 5))]

    def work(job: int, steps: int) -> None:
        for step in range(steps):
            for begins in (0, 10):
                takers[job].reach(begins)
                order.append(f"{job}{'cn'[begins > 0]}{step}")
            takers[job].end_step()

    threads = [threading.Thread(target=work, args=args) for args in ((0, 3), (1, 5))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    for taker in takers:
        taker.close()
    computing, sending = ([entry for entry in order if entry[1] == letter] for letter in "cn")
    assert computing == ["0c0", "1c0", "0c1", "1c1", "0c2", "1c2", "1c3", "1c4"]
    assert sending == ["0n0", "1n0", "0n1", "1n1", "0n2", "1n2", "1n3", "1n4"]


def test_the_turn_of_a_killed_process_is_passed_over(tmp_path: Path) -> None:
    """It has the turn, and there is no lease that could end it."""
    hears, tells = os.pipe()
    process = os.fork()
    if not process:
        try:
            TurnTaker(_turns(tmp_path, 0, 9), rank=0).reach(0)
            os.write(tells, b"!")
            signal.pause()
        finally:
            os._exit(1)
    try:
        assert os.read(hears, 1) == b"!"
        taker = TurnTaker(_turns(tmp_path, 1, 9), rank=0)
        waits = threading.Thread(target=taker.reach, args=[0])
        waits.start()
        waits.join(0.05)
        assert waits.is_alive()  # as long as the process lives
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(hears)
        os.close(tells)
    waits.join(TIMEOUT_S)
    assert not waits.is_alive()
    taker.close()


def test_a_job_that_does_not_end_its_turn_is_passed_over_after_its_lease(tmp_path: Path) -> None:
    stuck, other = (TurnTaker(_turns(tmp_path, job, 3, lease_s=0.05), rank=0) for job in (0, 1))
    stuck.reach(0)
    for _ in range(3):
        other.reach(0)
        other.end_step()
    for _ in range(3):  # comes back: goes on without turns that are over
        stuck.reach(0)
        stuck.end_step()
    stuck.close()
    other.close()


def test_a_turn_that_is_set_back_comes_forward_again(tmp_path: Path) -> None:
    """As by a process that was stopped just before it ended its turn, and passed over meanwhile."""
    takers = [TurnTaker(_turns(tmp_path, job, 9), rank=0) for job in (0, 1)]
    for _ in range(3):
        for taker in takers:
            for begins in (0, 10):
                taker.reach(begins)
            taker.end_step()
    board = tmp_path / "0"
    with board.open("r+b") as file:
        assert int.from_bytes(file.read(8), sys.byteorder) == 6
        file.seek(0)
        file.write((3).to_bytes(8, sys.byteorder))

    def step(taker: TurnTaker) -> None:
        taker.reach(0)
        taker.reach(10)
        taker.end_step()

    threads = [threading.Thread(target=step, args=[taker]) for taker in takers]
    for thread in threads:
        thread.start()
    wait_until(lambda: not any(thread.is_alive() for thread in threads), "both have had their turns")
    for taker in takers:
        taker.close()


def test_a_device_that_two_jobs_use_is_half_as_fast_for_each(tmp_path: Path) -> None:
    crowd = [SharedDevice(DeviceSharing(folder=str(tmp_path), job=job, num_jobs=2), 0, "device") for job in (0, 1)]
    assert crowd[0].pause(0.01) >= 0.01
