"""Tessel's plans: each placement, on programs that are made so, computes what one device computes, and is proved."""

from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from dyorc.cli import plan as plan_cli
from dyorc.errors import PlanError
from dyorc.planner import planned_module
from dyorc.planner.cluster import even_cluster
from dyorc.planner.plan import Apply, Plan
from dyorc.planner.plan.plan_file import write_plan
from dyorc.planner.plan.rewrites import communicate_early
from dyorc.planner.planners import PLANNERS
from dyorc.planner.planners.baselines.follow import choices_of
from dyorc.planner.planners.baselines.pipeline import stages_of
from dyorc.planner.planners.tessel.export import pipelining_table
from dyorc.planner.program.graph import Phase
from dyorc.planner.simulate import simulate
from tests.unit.planner.examples import Example, example_of
from tests.unit.planner.planned import assert_equal_to_one_device

_CLUSTER = even_cluster(4, flops_per_s=1e8, bytes_per_s=1e9, latency_s=0.0)
"""So slow that computation takes longer than communication."""


class _Words(nn.Module):
    """A table, four layers and an output layer."""

    def __init__(self, width: int = 8, words: int = 16) -> None:
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(4)])
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, words: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.table(words)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return nn.functional.cross_entropy(self.head(x), targets)


class _Branches(nn.Module):
    """Two inputs, each through layers of its own, and then a product of both."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.one = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.other = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.cross = nn.Linear(width, width)

    def forward(self, image: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        for layer in self.one:
            image = torch.tanh(layer(image))
        for layer in self.other:
            text = torch.tanh(layer(text))
        return (self.cross(image * text) ** 2).sum()


class _Translator(nn.Module):
    """An encoder and a decoder, each with a table of its own."""

    def __init__(self, width: int = 8, words: int = 16) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.encoder = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.decoder = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x = self.source(source)
        for layer in self.encoder:
            x = torch.tanh(layer(x))
        y = self.target(target) + x
        for layer in self.decoder:
            y = torch.tanh(layer(y))
        return (y**2).sum()


@cache
def _example(name: str) -> Example:
    torch.manual_seed(0)
    if name == "words":
        return example_of(_Words(), (torch.randint(0, 16, (8,)), torch.randint(0, 16, (8,))))
    if name == "branches":
        return example_of(_Branches(), (torch.randn(8, 8).double(), torch.randn(8, 8).double()))
    return example_of(_Translator(), (torch.randint(0, 16, (8, 4)), torch.randint(0, 16, (8, 4))))


@pytest.mark.parametrize(
    ("name", "placement", "parts"),
    [
        ("words", "v", 8),
        ("words", "x", 4),
        ("words", "m", 8),
        ("branches", "k", 2),
        ("translator", "m", 8),
        ("translator", "v", 4),
    ],
)
def test_a_plan_computes_what_the_program_computes(name: str, placement: str, parts: int) -> None:
    found = _example(name)
    plan = PLANNERS["tessel"](found.program, _CLUSTER, placements=[placement], microbatches=parts)
    notes = plan.provenance.notes
    assert (notes["placement"], notes["microbatches"]) == (placement, str(parts))
    assert "the least possible" in notes["period"]
    assert_equal_to_one_device(found, plan)
    assert plan.provenance.cost_s == simulate(plan, found.program, _CLUSTER).total_s
    assert plan.steps == communicate_early(plan).steps, "a rank sends when it reaches the step: in time for the next stage"
    lookups = {step.mesh for step in plan.steps if isinstance(step, Apply) and step.op == "aten.embedding.default"}
    if placement == "m":  # shared by all ranks: one table of the words, two of the translator
        assert [len(plan.meshes[mesh].ranks) for mesh in lookups] == [4] * (2 if name == "translator" else 1)
    if placement == "x":
        assert {mesh.ranks for mesh in plan.meshes.values()} == {(0, 3), (1, 2), (2, 1), (3, 0)}
    if placement == "k":
        assert sorted(len(mesh.ranks) for mesh in plan.meshes.values()) == [1, 1, 1, 1, 4]


def _order(plan: Plan, program_phase: dict[str, Phase], rank: int) -> str:
    """What a rank does: F and B, one letter for each pass over a microbatch."""
    passes: list[tuple[str, str, int | None]] = []
    for step in plan.steps:
        if isinstance(step, Apply) and step.part is not None and rank in plan.meshes[step.mesh].ranks:
            one = ("F" if program_phase[step.node] is Phase.FORWARD else "B", step.mesh, step.part)
            if not passes or passes[-1] != one:
                passes.append(one)
    return "".join(letter for letter, _, _ in passes)


def test_the_best_placement_is_kept_and_is_no_slower_than_1f1b() -> None:
    found, heard = _example("words"), list[tuple[float, float | None]]()
    plan = PLANNERS["tessel"](found.program, _CLUSTER, microbatches=8, progress=lambda done, cost: heard.append((done, cost)))
    byhand = communicate_early(PLANNERS["megatron"](found.program, _CLUSTER, tp=1, pp=4, microbatches=8))
    assert simulate(plan, found.program, _CLUSTER).total_s <= simulate(byhand, found.program, _CLUSTER).total_s
    assert [done for done, _ in heard] == [0.0, 0.25, 0.5, 0.75]
    assert plan.provenance.cost_s is not None
    assert plan.provenance.cost_s <= min(cost for _, cost in heard if cost is not None)


def test_stages_are_even_and_alternate() -> None:
    """The transposed matrix of the head, which no layer owns, once took the backward pass of everything to the first stage."""
    found = _example("words")
    stages = stages_of(choices_of(found.program), 4, 4)
    num_nodes = [sum(stages.of_node[node.name] == (stage,) for node in found.program.nodes) for stage in range(4)]
    assert max(num_nodes[:3]) < 2 * min(num_nodes), num_nodes  # the last has the loss, too
    assert stages.of_source["head.weight"] == (3,)
    plan = PLANNERS["megatron"](found.program, _CLUSTER, tp=1, pp=4, microbatches=8)
    phases = {node.name: node.phase for node in found.program.nodes}
    assert _order(plan, phases, 0).startswith("FFFFBFBFB")


def test_what_is_no_pipeline_is_refused() -> None:
    found = _example("words")
    with pytest.raises(PlanError, match="unknown placement 'w'; choose from v, x, m, k"):
        PLANNERS["tessel"](found.program, _CLUSTER, placements=["w"])
    with pytest.raises(PlanError, match=r"k: placement k needs an even number of ranks and two branches that meet"):
        PLANNERS["tessel"](found.program, _CLUSTER, placements=["k"])
    with pytest.raises(PlanError, match=r"v: one repetition alone needs [\d,]+ units of memory on rank 0, which has 0"):
        PLANNERS["tessel"](found.program, even_cluster(4, memory_bytes=1_000), placements=["v"])


def test_torch_reads_the_order_of_a_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A contract with the installed torch, which does not promise to keep this."""
    from torch.distributed.pipelining import schedules

    found = _example("words")
    plan = PLANNERS["tessel"](found.program, _CLUSTER, placements=["v"], microbatches=8)
    lines = pipelining_table(plan, found.program).splitlines()
    assert lines[3].startswith("3F0,3B0,3F1,3B1,3F2")
    actions = {rank: [schedules._Action.from_str(action) for action in line.split(",")] for rank, line in enumerate(lines)}
    assert schedules._validate_schedule(actions, 4, 4, 8) == {0: 0, 1: 1, 2: 2, 3: 3}
    lowered = schedules._add_send_recv(actions, lambda stage: stage, 4)  # raises if ranks would wait for each other
    assert sum("SEND_F" in str(action) for line in lowered.values() for action in line) == 3 * 8
    with pytest.raises(PlanError, match="each stage has its own rank"):
        pipelining_table(PLANNERS["dp_even"](found.program, _CLUSTER), found.program)
    write_plan(plan, tmp_path / "plan.json")
    monkeypatch.setattr(planned_module, "program_of_plan", lambda plan, model: found.program)  # it is in no file
    written = CliRunner().invoke(plan_cli.app, ["export", f"{tmp_path}/plan.json", "-o", f"{tmp_path}/table.csv"])
    assert "table.csv: 4 ranks" in written.stdout, written
    assert (tmp_path / "table.csv").read_text().splitlines() == lines
