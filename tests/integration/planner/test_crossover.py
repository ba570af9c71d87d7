"""Jobs on the same devices, each on its own ranks: they learn what each learns alone, and the others go on if one ends."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dyorc.cli.main import _app as app  # pyright: ignore[reportPrivateUsage]
from dyorc.errors import PlanRunError
from dyorc.planner.cluster import even_cluster
from dyorc.planner.plan.plan_file import read_plan, write_plan
from dyorc.planner.planned_module import module_of, program_of
from dyorc.planner.planners import PLANNERS
from dyorc.planner.planners.crossover.merge import MergeCandidate, MergedJobs, merge_jobs
from dyorc.planner.planners.crossover.merged_plans_file import write_merged
from dyorc.planner.runtime import RankForkServer, RankOptions, Ranks, Training
from dyorc.planner.runtime.side_by_side import TrainingJob, run_side_by_side
from tests.deadlines import TIMEOUT_S
from tests.unit.planner.examples import example

_STEPS = 4
_RATES = (0.1, 0.2, 0.3)
_MODEL = """
from dyorc.planner.models import gpt

def make():
    return gpt(layers=1, hidden=16, vocabulary=32, sequence=8, batch=8)
"""


@pytest.fixture(scope="module")
def groups(fork_server: RankForkServer) -> Iterator[list[Ranks]]:
    """The ranks of three jobs."""
    options = RankOptions(num_ranks=2, device="cpu", timeout_s=TIMEOUT_S, start_timeout_s=TIMEOUT_S)
    with ExitStack() as stack:
        yield [stack.enter_context(Ranks(options, fork_server.fork)) for _ in _RATES]


def _jobs() -> tuple[list[TrainingJob], MergedJobs]:
    found, cluster = example("gpt"), even_cluster(2, flops_per_s=1e9, bytes_per_s=1e8)
    plan = PLANNERS["dp_even"](found.program, cluster)
    inputs = {name: found.sources[name] for name in found.program.inputs}
    jobs = [
        TrainingJob(
            plan=plan,
            program=found.program,
            sources=found.sources,
            make_batch=lambda step: inputs,
            training=Training(steps=_STEPS, learning_rate=rate, overlap=False),
        )
        for rate in _RATES
    ]
    return jobs, merge_jobs([MergeCandidate(name=name, plan=plan, program=found.program) for name in "abc"], cluster)


@pytest.mark.slow
def test_the_command_line_trains_merged_plans(groups: list[Ranks], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dyorc.planner import runtime

    (tmp_path / "model.py").write_text(_MODEL)
    plan, target, cluster = tmp_path / "plan.json", f"{tmp_path}/model.py:make", even_cluster(2)
    program = program_of(target)
    write_plan(replace(PLANNERS["dp_even"](program, cluster), target=target), plan)
    found = MergeCandidate(name="plan.json", plan=read_plan(plan), program=program)
    write_merged(merge_jobs([found, found], cluster), tmp_path / "merged.json")
    started = iter(groups)
    monkeypatch.setattr(runtime, "Ranks", lambda options: nullcontext(next(started)))  # real ranks, which have started
    printed = CliRunner().invoke(app, ["plan", "run", str(tmp_path / "merged.json"), "--steps", "3"], catch_exceptions=False)
    first, second = re.findall(r"plan\.json: 3 of 3 steps, loss ([\d.]+) to ([\d.]+)\n", printed.stdout)
    assert first == second
    module, inputs = module_of(target)
    assert float(first[0]) == pytest.approx(inputs.call(module).item(), rel=1e-5)
    assert float(first[1]) < float(first[0])


def test_three_jobs_learn_what_each_learns_alone_and_two_go_on_when_one_is_killed(groups: list[Ranks]) -> None:
    jobs, found = _jobs()
    assert len(found.sharing.claims) == 3
    alone = [run_side_by_side([job], [ranks], None)[0].losses for job, ranks in zip(jobs, groups, strict=True)]
    together = run_side_by_side(jobs, groups, found.sharing)
    assert [run.error for run in together] == [None] * 3
    assert [run.losses for run in together] == alone  # to the bit
    assert len({loss for losses in alone for loss in losses}) == 3 * _STEPS - 2  # they begin with the same parameters
    pids = groups[0].pids

    def heard(job: int, step: int) -> None:
        if (job, step) == (0, 1):
            os.kill(groups[0].pids[1], signal.SIGKILL)

    killed, *others = run_side_by_side(jobs, groups, replace(found.sharing, lease_s=1e9), heard)
    assert isinstance(killed.error, PlanRunError)
    assert "rank 1 was killed by SIGKILL" in str(killed.error)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert [(run.error, run.losses) for run in others] == [(None, losses) for losses in alone[1:]]

    gone, *others = run_side_by_side(jobs, groups, found.sharing)  # one cannot even begin
    assert "the ranks have ended" in str(gone.error)
    assert [(run.error, run.losses) for run in others] == [(None, losses) for losses in alone[1:]]
