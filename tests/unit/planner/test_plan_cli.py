"""`dyorc plan` and `dyorc cluster` on the small GPT: what they write and print, and which errors name what is wrong."""

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from benchmarks.papers.mutants import MUTATIONS
from dyorc.cli.main import _app as app  # pyright: ignore[reportPrivateUsage]
from dyorc.errors import DefinitionError, DyOrcError, ModuleImportError, PlanError, ProgramCaptureError
from dyorc.planner.cluster import Cluster, even_cluster, uneven_cluster
from dyorc.planner.plan import Inference, Plan, SearchEnd
from dyorc.planner.plan.plan_file import read_plan, write_plan
from dyorc.planner.planned_module import module_of, program_of
from dyorc.planner.planners import PLANNERS, auto, pricing
from dyorc.planner.planners.auto import Attempt, plan
from dyorc.planner.program import TensorProgram, evaluate, sources_of
from dyorc.planner.simulate import simulate
from dyorc.planner.verify import verify
from tests.unit.planner.examples import example

_MODEL = """
import torch
from torch import nn
from dyorc.planner.models import gpt

def make(batch=8):
    return gpt(layers=1, hidden=16, vocabulary=32, sequence=8, batch=batch)

def other():
    return make(4)

class Waits(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        loss = self.module(*inputs)
        return loss * torch.poisson(loss.detach())

def draws():
    module, inputs = make()
    return Waits(module), inputs

def breaks():
    raise RuntimeError("no weights here")

def alone():
    return make()[0]

big = 3
"""
_CLUSTER = """
name = "two"
[[machines]]
name = "left"
[[machines.devices]]
name = "quick"
flops_per_s = 3e9
memory_bytes = {memory}
[[machines]]
name = "right"
[[machines.devices]]
name = "slow"
flops_per_s = 1e9
memory_bytes = {memory}
[[links]]
between = ["left", "right"]
bytes_per_s = 1e9
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(_MODEL)
    (tmp_path / "cluster.toml").write_text(_CLUSTER.format(memory=1_000_000_000))
    (tmp_path / "tiny.toml").write_text(_CLUSTER.format(memory=1000))
    return tmp_path


def _run(*arguments: object) -> Result:
    runner = CliRunner(env={"COLUMNS": "300", "NO_COLOR": "1"})
    return runner.invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def _planned(folder: Path, planner: str = "dp_even") -> Path:
    path = folder / "plan.json"
    _run("plan", f"{folder}/model.py:make", "--cluster", folder / "cluster.toml", "--planner", planner, "-o", path)
    return path


@pytest.mark.real  # captures the model at each command
def test_a_model_is_planned_shown_verified_and_simulated(folder: Path) -> None:
    path, target, cluster = folder / "plan.json", f"{folder}/model.py:make", folder / "cluster.toml"
    made = _run("plan", target, "--cluster", cluster, "--planner", "dp_proportional", "-o", path)
    assert re.search(r"plan\.json: by dp_proportional, .* ms a step on two \(2 ranks\)", made.stdout), made.stdout
    assert read_plan(path).target == target
    shown = _run("plan", "show", path).stdout
    assert re.search(r"data 2 +0, 1", shown), shown
    assert "all_reduce" in shown
    drawn = _run("plan", "show", path, "--cluster", cluster, "--picture", folder / "plan.svg").stdout
    assert "peak MB" in drawn
    picture = (folder / "plan.svg").read_text()
    assert "rank 1" in picture
    assert re.search(r"feed_forward\.up\.weight \[64, 16\]", picture)
    assert "data: dim 0 6:2" in picture
    assert re.search(r"proved|nothing found", _run("plan", "verify", path).stdout)
    simulated = _run("plan", "simulate", path, "--cluster", cluster, "--trace", folder / "trace.json")
    assert re.search(r"ms a step on two", simulated.stdout)
    assert json.loads((folder / "trace.json").read_text())["traceEvents"]
    values = json.loads(_run("plan", "show", path, "--cluster", cluster, "--json").stdout)
    assert values["meshes"][0]["axes"] == {"data": 2}
    assert [rank["rank"] for rank in values["ranks"]] == [0, 1]
    assert values["simulation"] == json.loads(_run("plan", "simulate", path, "--cluster", cluster, "--json").stdout)["simulation"]
    assert {"op", "num_steps", "flops_share", "bytes_share", "seconds"} == values["whole_on_every_rank"][0].keys()
    assert re.search(r"whole on every rank +steps +of the flops +of the bytes +ms", drawn), drawn
    assert not list(folder.glob(".*"))


_NOT_FOR_ALL = ("exhaustive", "expert_parallel", "interlaced", "3f1b")  # small graphs, experts, embeddings, several passes


@pytest.mark.parametrize("name", [name for name in PLANNERS if name not in _NOT_FOR_ALL])
def test_every_planner_can_be_asked_by_name_and_says_how_far_it_is(name: str) -> None:
    attempts: list[Attempt] = []
    found = plan(example("net").program, uneven_cluster([3, 1]), name, report=attempts.append)
    assert found.provenance.planner
    assert attempts[-1].done_ratio == 1.0
    assert all(attempt.planner == name for attempt in attempts)


def test_without_a_planner_the_best_of_all_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = ("dp_even", "dp_proportional", "zero", "megatron", "expert_parallel")
    monkeypatch.setattr(auto, "PLANNERS", {name: PLANNERS[name] for name in quick})
    path = folder / "plan.json"
    result = _run("plan", f"{folder}/model.py:make", "--cluster", folder / "cluster.toml", "-o", path)
    found = dict(re.findall(r"^(\w+): ([\d.]+) ms a step", result.stderr, re.MULTILINE))
    assert {"dp_even", "dp_proportional"} <= found.keys()
    cost_s = read_plan(path).provenance.cost_s
    assert cost_s is not None
    assert min(map(float, found.values())) == pytest.approx(cost_s * 1e3, rel=1e-3)


def test_what_a_search_has_found_is_kept_when_it_is_interrupted() -> None:
    heard: list[Attempt] = []

    def heard_and_stopped(attempt: Attempt) -> None:
        heard.append(attempt)
        if attempt.planner == "zero" and attempt.ended is None:
            raise KeyboardInterrupt

    found = plan(example("gpt").program, even_cluster(2), report=heard_and_stopped, among=["dp_even", "zero", "megatron"])
    assert found.provenance.planner == "dp_even"
    assert found.provenance.ended is SearchEnd.INTERRUPTED
    assert found.provenance.notes["not finished"] == "zero"
    assert found.provenance.notes["not tried"] == "megatron"
    assert [attempt.planner for attempt in heard] == ["dp_even", "dp_even", "zero", "zero", "megatron"]
    assert [attempt.error for attempt in heard[3:]] == ["not finished: interrupted", "not tried: interrupted"]
    assert heard[1].best_s == found.provenance.cost_s


def test_the_quickest_plan_is_kept_whatever_the_order() -> None:
    program, cluster = example("gpt").program, even_cluster(2)
    costs = {name: plan(program, cluster, name).provenance.cost_s for name in ("dp_even", "zero", "megatron")}
    for names in (list(costs), list(costs)[::-1]):
        best = plan(program, cluster, among=names)
        assert best.provenance.cost_s == min(cost for cost in costs.values() if cost)
        assert simulate(best, program, cluster).total_s == best.provenance.cost_s


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        ("nothing", DefinitionError, r"model\.py has no function 'nothing' that makes a model"),
        ("big", DefinitionError, "has no function 'big'"),
        ("alone", DefinitionError, r"alone\(\) must return a module and a tuple of example inputs, .* it returned _?Gpt"),
        ("breaks", ProgramCaptureError, r"breaks\(\) raised RuntimeError: no weights here"),
        ("draws", ProgramCaptureError, "aten.poisson.default draws as many random numbers as it needs"),
    ],
)
def test_a_model_that_cannot_be_planned_is_named(folder: Path, make: str, error: type[DyOrcError], text: str) -> None:
    with pytest.raises(error, match=text):
        _run("plan", f"{folder}/model.py:{make}", "--cluster", folder / "cluster.toml", "-o", folder / "plan.json")
    assert not (folder / "plan.json").exists()


def test_other_bad_input_is_named_and_nothing_is_written(folder: Path) -> None:
    target, cluster, output = f"{folder}/model.py:make", folder / "cluster.toml", folder / "plan.json"
    with pytest.raises(PlanError, match=r"unknown planner 'best'; choose one of auto, dp_even"):
        _run("plan", target, "--cluster", cluster, "--planner", "best", "-o", output)
    with pytest.raises(PlanError, match=r"rank 0 \(quick on left\) needs [\d,]+ bytes and has 1,000"):
        _run("plan", target, "--cluster", folder / "tiny.toml", "--planner", "dp_even", "-o", output)
    with pytest.raises(PlanError, match=r"no planner has found a plan .*:(.|\n)*zero: .*needs [\d,]+ bytes and has 1,000"):
        plan(example("gpt").program, even_cluster(2, memory_bytes=1000), among=["dp_even", "zero"])
    with pytest.raises(PlanError, match="there is no folder"):
        _run("plan", target, "--cluster", cluster, "-o", folder / "nowhere" / "plan.json")
    with pytest.raises(DefinitionError, match="'model' names no model; expected MODULE:FUNCTION"):
        _run("plan", "model", "--cluster", cluster, "-o", output)
    (folder / "raises.py").write_text("1 / 0")
    with pytest.raises(ModuleImportError, match=r"raises\.py cannot be imported: ZeroDivisionError.*line 1"):
        _run("plan", f"{folder}/raises.py:make", "--cluster", cluster, "-o", output)
    assert not output.exists()


def test_a_plan_of_another_model_or_a_changed_file_is_refused(folder: Path) -> None:
    path = _planned(folder)
    with pytest.raises(PlanError, match=r"the plan is for a program with digest \w+; .* has \w+: it is another model"):
        _run("plan", "verify", path, "--model", f"{folder}/model.py:other")
    path.write_text(path.read_text().replace('"all_reduce"', '"all_gather"', 1))
    with pytest.raises(PlanError, match=r"plan\.json: the plan was changed after it was written"):
        _run("plan", "show", path)
    with pytest.raises(PlanError, match=r"cluster file .* cannot be read"):
        _run("cluster", "check", folder / "no.toml")


@pytest.mark.real  # captures the model at each command
def test_reductions_are_rewritten_with_what_is_computed_before_and_after_them(folder: Path) -> None:
    path, made, target, cluster = folder / "plan.json", folder / "fused.json", f"{folder}/model.py:make", folder / "cluster.toml"
    _run("plan", f"{target}+adam", "--cluster", cluster, "--planner", "dp_even", "-o", path)
    assert read_plan(path).target == f"{target}+adam"
    printed = _run("plan", "fuse", path, "--cluster", cluster, "-o", made).stdout
    assert re.search(r"^ *AR-C +[\d.]+ ms", printed, re.MULTILINE), printed
    assert re.search(r"^ *overlapped, 4 chunks +[\d.]+ ms", printed, re.MULTILINE), printed
    assert re.search(r"proved|nothing found", printed)
    plan = read_plan(made)
    assert re.search(rf"fused.json: {plan.provenance.notes['coconet']}, .* on two, {len(plan.kernels)} kernels", printed), printed
    assert plan.kernels
    assert re.search(r"kernel: steps \d+ to \d+ in \d+ chunks", _run("plan", "show", made).stdout)
    write_plan(replace(plan, inference=Inference(inputs=(), outputs=(), max_samples=1, batch_dims={})), path)
    with pytest.raises(PlanError, match=r"plan\.json is of a model that answers; what is rewritten is a step of training"):
        _run("plan", "fuse", path, "--cluster", cluster, "-o", made)


@pytest.mark.real  # captures the model at each command
def test_optimizers_are_planned_by_their_names(folder: Path) -> None:
    path, target, cluster = folder / "plan.json", f"{folder}/model.py:make", folder / "cluster.toml"
    for optimizer in ("adam2", "adama2"):
        _run("plan", f"{target}+{optimizer}", "--cluster", cluster, "--planner", "dp_even", "-o", path)
        module, inputs = module_of(f"{target}+{optimizer}")
        program = program_of(read_plan(path).target)
        results = evaluate(program, sources_of(program, module, inputs.tensors))
        assert float(results[program.loss]) == pytest.approx(inputs.call(module).item(), rel=1e-5)
        assert bool(program.gradients) == (optimizer == "adam2")
    for wrong in ("best", "adama0", "adam-2", ""):
        with pytest.raises(DefinitionError, match=rf"names the optimizer '{wrong}'; expected sgd, momentum, adam or adama, and"):
            _run("plan", f"{target}+{wrong}", "--cluster", cluster, "-o", path)
    with pytest.raises(DefinitionError, match="names an optimizer, and a model that answers is not trained"):
        _run("plan", f"{target}+adam", "--inference", "--cluster", cluster, "-o", path)


def test_a_wrong_plan_is_not_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(program: TensorProgram, cluster: Cluster) -> Plan:
        """Leaves a sum out."""
        made = PLANNERS["dp_even"](program, cluster)
        return type(made)(**{**vars(made), "steps": made.steps[:-1]})

    monkeypatch.setattr(auto, "PLANNERS", {"forgetful": forgetful})
    monkeypatch.setattr(
        pricing,
        "simulate",
        lambda _, program, cluster, overlap: simulate(PLANNERS["dp_even"](program, cluster), program, cluster, overlap=overlap),
    )
    with pytest.raises(PlanError, match=r"the plan is not proved to compute what the captured program computes"):
        _run(
            "plan", f"{folder}/model.py:make", "--cluster", folder / "cluster.toml", "--planner", "forgetful", "-o", folder / "p"
        )
    assert not (folder / "p").exists()


def test_a_cluster_file_is_checked_and_a_hole_in_it_named(folder: Path) -> None:
    shown = _run("cluster", "check", folder / "cluster.toml").stdout
    assert "two: 2 ranks" in shown
    assert "left - right" in shown
    (folder / "hole.toml").write_text(_CLUSTER.format(memory=1).partition("[[links]]")[0])
    with pytest.raises(PlanError, match=r"hole\.toml, line 1: links \(two\) is missing: one with between"):
        _run("cluster", "check", folder / "hole.toml")


def test_help_does_not_import_what_only_plans_need() -> None:
    names = ["torch", "dyorc.planner.program", "networkx", "matplotlib"]
    code = f"import sys, dyorc.cli.main; print([name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _wrong(program: TensorProgram, cluster: Cluster) -> Plan:
    """The plan of `dp_proportional` with a fault, which is quicker than that of `dp_even`."""
    made = PLANNERS["dp_proportional"](program, cluster)
    for mutate in MUTATIONS.values():
        mutant = mutate(program, made)
        if mutant is not None and _is_simulated_and_wrong(program, mutant, cluster):
            return replace(mutant, provenance=replace(made.provenance, planner="wrong"))
    raise AssertionError("some fault can be simulated")


def _is_simulated_and_wrong(program: TensorProgram, plan: Plan, cluster: Cluster) -> bool:
    try:
        right_s = simulate(PLANNERS["dp_even"](program, cluster), program, cluster).total_s
        quicker = simulate(plan, program, cluster).total_s < right_s
    except (PlanError, LookupError):  # a fault that no simulation can follow
        return False
    return quicker and bool(verify(program, plan).findings)


def test_the_next_best_plan_is_taken_if_the_quickest_is_not_proved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "PLANNERS", {"wrong": _wrong, "dp_even": PLANNERS["dp_even"]})
    path, arguments = folder / "plan.json", [f"{folder}/model.py:make", "--cluster", folder / "cluster.toml", "--no-compare"]
    result = _run("plan", *arguments, "-o", path)
    assert "warning: not taken, wrong: the plan is not proved" in result.stderr, result.stderr
    assert read_plan(path).provenance.planner == "dp_even"
    with pytest.raises(PlanError, match="no plan that was found is proved, so none is written:\n  wrong: the plan is not proved"):
        _run("plan", *arguments, "-o", folder / "none.json", "--planner", "wrong")
    assert not (folder / "none.json").exists()


def test_a_deadline_ends_the_search(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*_: object) -> Plan:
        while True:
            time.sleep(0.001)

    monkeypatch.setattr(auto, "PLANNERS", {"dp_even": PLANNERS["dp_even"], "endless": endless, "zero": PLANNERS["zero"]})
    path, arguments = folder / "plan.json", [f"{folder}/model.py:make", "--cluster", folder / "cluster.toml", "--no-compare"]
    result = _run("plan", *arguments, "-o", path, "--deadline", "5")
    assert "endless: not finished: the deadline of 5 s was reached" in result.stderr
    assert "zero: not tried: the deadline of 5 s was reached" in result.stderr
    assert "by dp_even, search ended by deadline" in result.stdout
    assert read_plan(path).provenance.ended is SearchEnd.DEADLINE
    assert read_plan(path).provenance.notes["not tried"] == "zero"
