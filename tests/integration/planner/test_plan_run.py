"""`dyorc plan run`: real ranks compute the loss of the model; what cannot run is refused before a process starts, by name."""

import os
import re
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from dyorc.cli.main import _app as app  # pyright: ignore[reportPrivateUsage]
from dyorc.errors import PlanError, PlanRunError
from dyorc.planner.plan import Plan
from dyorc.planner.planned_module import module_of
from dyorc.planner.runtime import Ranks, RunResult

_MODEL = """
from dyorc.planner.models import gpt

def make(batch=8):
    return gpt(layers=1, hidden=16, vocabulary=32, sequence=8, batch=batch)

def other():
    return make(4)
"""
_CLUSTER = """
name = "two"
links = [{{ between = ["left", "right"], bytes_per_s = 1e9 }}]
[[machines]]
name = "left"
devices = [{{ name = "one", flops_per_s = 1e9, memory_bytes = {memory} }}]
[[machines]]
name = "right"
devices = [{{ name = "other", flops_per_s = 1e9, memory_bytes = {memory} }}]
"""


def _run(*arguments: object) -> Result:
    runner = CliRunner(env={"COLUMNS": "300", "NO_COLOR": "1"})
    return runner.invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan")
    (path / "model.py").write_text(_MODEL)
    (path / "cluster.toml").write_text(_CLUSTER.format(memory=1_000_000_000))
    (path / "tiny.toml").write_text(_CLUSTER.format(memory=1000))
    model = f"{path}/model.py:make"
    _run("plan", model, "--cluster", path / "cluster.toml", "--planner", "dp_even", "-o", path / "plan.json")
    return path


def test_real_ranks_compute_loss_gradients_and_buffers_of_the_model(folder: Path) -> None:
    printed = _run("plan", "run", folder / "plan.json", "--cluster", folder / "cluster.toml").stdout
    found = re.search(r"2 ranks computed what one device does: loss ([\d.]+); all 18 results are equal", printed)
    assert found, printed
    module, example = module_of(f"{folder}/model.py:make")
    assert f"{example.call(module).item():.4f}" in found[1]


def test_ranks_that_compute_something_else_end_with_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Ranks.run

    def run_and_change(ranks: Ranks, plan: Plan, sources: Mapping[str, torch.Tensor], *, overlap: bool = False) -> RunResult:
        ran = run(ranks, plan, sources, overlap=overlap)
        loss = min(ran.results.values(), key=torch.numel)
        return replace(ran, results={name: t if t is loss else t * 1.001 for name, t in ran.results.items()})

    monkeypatch.setattr(Ranks, "run", run_and_change)
    with pytest.raises(PlanRunError, match=r"2 ranks computed something else than one device: loss .* 17 of 18 results differ"):
        _run("plan", "run", folder / "plan.json")


def test_a_rank_that_dies_is_named_and_leaves_no_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = []
    run = Ranks.run

    def run_without_rank_1(ranks: Ranks, plan: Plan, sources: Mapping[str, torch.Tensor], *, overlap: bool = False) -> object:
        pids.extend(ranks.pids)
        os.kill(ranks.pids[1], signal.SIGKILL)
        return run(ranks, plan, sources, overlap=overlap)

    monkeypatch.setattr(Ranks, "run", run_without_rank_1)
    with pytest.raises(PlanRunError, match="rank 1 was killed by SIGKILL") as raised:
        _run("plan", "run", folder / "plan.json")
    assert raised.value.rank == 1
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_what_cannot_run_is_refused_before_a_process_starts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(ranks: Ranks) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(Ranks, "start", started)
    plan = folder / "plan.json"
    with pytest.raises(PlanError, match=r"the plan is for a program with digest \w+; .* has \w+: it is another model"):
        _run("plan", "run", plan, "--model", f"{folder}/model.py:other")
    with pytest.raises(PlanError, match=r"rank 0 \(one on left\) needs [\d,]+ bytes and has 1,000"):
        _run("plan", "run", plan, "--cluster", folder / "tiny.toml")
    changed = folder / "changed.json"
    changed.write_text(plan.read_text().replace('"all_reduce"', '"all_gather"', 1))
    with pytest.raises(PlanError, match=r"changed\.json: the plan was changed after it was written"):
        _run("plan", "run", changed)
