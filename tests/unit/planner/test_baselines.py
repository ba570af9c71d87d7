"""The plans that people make by hand: equal to one device, and with the communication that each is known for."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn

from dyorc.errors import PlanError
from dyorc.planner import models
from dyorc.planner.cluster import even_cluster, uneven_cluster
from dyorc.planner.plan import Apply, Collective, Plan, Transfer
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import REPLICATE, Shard
from dyorc.planner.program.graph import Phase
from tests.unit.planner.examples import Example, example, example_of
from tests.unit.planner.planned import assert_equal_to_one_device

_CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("dp_even", 2, {}),
    ("dp_even", 4, {"microbatches": 2}),
    ("dp_proportional", 2, {"ratios": (3, 1)}),
    ("dp_proportional", 4, {"ratios": (3, 1, 0, 1)}),
    ("zero", 2, {}),
    ("zero", 4, {"ratios": (3, 1, 0, 1)}),
    ("zero", 2, {"ratios": (3, 1), "microbatches": 2}),
    ("parameter_server", 2, {}),
    ("parameter_server", 2, {"servers": 1}),
    ("parameter_server", 4, {"ratios": (3, 1, 0, 1)}),
    ("parameter_server", 4, {"servers": 2, "ratios": (3, 1)}),
    ("expert_parallel", 4, {}),
    ("megatron", 2, {}),
    ("megatron", 4, {}),
    ("megatron", 4, {"dp": 2}),
    ("megatron", 4, {"dp": 2, "pp": 2}),
    ("megatron", 4, {"dp": 2, "pp": 2, "microbatches": 4}),
    ("megatron", 4, {"pp": 2, "microbatches": 4}),
]


@pytest.mark.parametrize(("planner", "num_ranks", "options"), _CASES, ids=str)
@pytest.mark.parametrize("name", ["gpt", "net"])
def test_a_plan_computes_what_the_program_computes(name: str, planner: str, num_ranks: int, options: dict[str, Any]) -> None:
    if name == "net" and options.get("microbatches") and planner == "zero":
        options = options | {"ratios": (1, 1)}  # eight images do not go four times in shares of 3 to 1
    found = example(name)
    plan = PLANNERS[planner](found.program, even_cluster(num_ranks), **options)
    assert plan.provenance.planner == planner
    assert_equal_to_one_device(found, plan)


def test_shares_are_in_proportion_to_the_speeds() -> None:
    plan = PLANNERS["dp_proportional"](example("gpt").program, uneven_cluster([3, 1]))
    assert {p.layout for p in plan.tensors.values() if p.value == "input_0"} >= {(Shard(0, (6, 2)),)}


class _Experts(nn.Module):
    """As in GShard without the gate: one expert for each fourth of each sequence, and a linear layer before and after."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(8, 8)
        self.up = nn.Parameter(torch.randn(4, 8, 64) * 0.1)
        self.down = nn.Parameter(torch.randn(4, 64, 8) * 0.1)
        self.after = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        batch, sequence, hidden = x.shape
        tokens = self.before(x).view(batch, 4, sequence // 4, hidden).transpose(0, 1)
        mixed = torch.bmm(torch.relu(torch.bmm(tokens.reshape(4, -1, hidden), self.up)), self.down)
        out = self.after(mixed.view(4, batch, sequence // 4, hidden).transpose(0, 1).reshape(batch, sequence, hidden))
        return nn.functional.cross_entropy(out.flatten(0, 1), targets.flatten())


def _experts() -> Example:
    torch.manual_seed(0)
    return example_of(_Experts(), (torch.randn(8, 8, 8, dtype=torch.float64), torch.randint(0, 3, (8, 8))))


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_experts_stay_where_they_are_and_tokens_travel(num_ranks: int) -> None:
    found = _experts()
    plan = PLANNERS["expert_parallel"](found.program, even_cluster(num_ranks))
    assert_equal_to_one_device(found, plan)
    kinds = Counter((step.kind, plan.tensors[step.source].value) for step in plan.steps if isinstance(step, Collective))
    assert sum(count for (kind, _), count in kinds.items() if kind == "all_to_all") == 4  # there and back, forward and backward
    assert not any(value in ("up", "down") for _, value in kinds)
    assert {p.layout[0].dim for p in plan.tensors.values() if p.value in ("up", "down") and isinstance(p.layout[0], Shard)} == {0}


def test_tokens_of_a_gate_travel_there_and_back_and_the_gate_is_whole() -> None:
    found = example("bert_moe")
    plan = PLANNERS["expert_parallel"](found.program, even_cluster(2))
    assert_equal_to_one_device(found, plan)
    kinds = Counter(step.kind for step in plan.steps if isinstance(step, Collective) and _num_elements(plan, step) > 1)
    assert kinds["all_to_all"] == 4  # one layer has experts
    assert not kinds["reduce_scatter"]
    assert not kinds["all_gather"]
    (gate,) = (tensor for name, (tensor,) in plan.sources.items() if name.endswith("gate.weight"))
    assert plan.tensors[gate].layout[0] == REPLICATE


class _Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8), nn.LayerNorm(8), nn.Linear(8, 32), nn.GELU())
        self.head = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.head(self.layers(x)) ** 2).sum()


def test_columns_and_then_rows_need_one_all_reduce_each_way() -> None:
    found = example_of(_Mlp(), (torch.randn(4, 8, dtype=torch.float64),))
    plan = PLANNERS["megatron"](found.program, even_cluster(2))
    assert_equal_to_one_device(found, plan)
    layouts = {p.value: p.layout[0] for name, p in plan.tensors.items() if (name,) == plan.sources.get(p.value)}
    assert layouts["layers.0.weight"] == Shard(0, (16, 16))
    assert layouts["layers.2.weight"] == Shard(1, (16, 16))
    moved = [step.kind for step in plan.steps if isinstance(step, Collective) and step.kind not in ("slice", "mask")]
    # after each pair of matrices, and before the second pair on the way back; the first input needs no gradient
    assert moved == ["all_reduce"] * 3


def test_zero_shards_parameters_and_scatters_gradients() -> None:
    found = example("gpt")
    plan = PLANNERS["zero"](found.program, even_cluster(2))
    sharded = {name for name, (tensor,) in plan.sources.items() if isinstance(plan.tensors[tensor].layout[0], Shard)}
    assert sharded >= set(found.program.parameters)
    for parameter, gradient in found.program.gradients.items():
        (source,) = plan.sources[parameter]
        assert plan.tensors[plan.results[gradient]].layout == plan.tensors[source].layout
    assert not any(isinstance(s, Collective) and s.kind == "all_reduce" and _num_elements(plan, s) > 1 for s in plan.steps)


def _num_elements(plan: Plan, step: Collective) -> int:
    return plan.values[plan.tensors[step.source].value].num_bytes // 8


def test_stages_alternate_forward_and_backward() -> None:
    torch.manual_seed(0)
    found = example_of(nn.Sequential(_Deep()), (torch.randn(8, 8, dtype=torch.float64),))
    plan = PLANNERS["megatron"](found.program, even_cluster(4), tp=1, pp=4, microbatches=8)
    assert_equal_to_one_device(found, plan)
    phases = {node.name: node.phase for node in found.program.nodes}
    for stage in range(4):
        first = [
            "F" if phases[step.node] is Phase.FORWARD else "B"
            for step in plan.steps
            if isinstance(step, Apply) and step.mesh == f"stage{stage}" and step.part is not None
        ]
        blocks = "".join(a for a, b in zip(first, ["", *first], strict=False) if a != b)
        assert blocks == "FB" * (8 - (3 - stage) if stage < 3 else 8), stage  # ahead by as many forwards as stages follow
    assert sum(isinstance(step, Transfer) for step in plan.steps) == 3 * 2 * 8


def _crossing(plan: Plan) -> Counter[tuple[str, str]]:
    """The bytes of all microbatches that go from each stage's mesh to another."""
    moves = [(plan.tensors[step.source], plan.tensors[step.target]) for step in plan.steps if isinstance(step, Transfer)]
    found = Counter[tuple[str, str]]()
    for value, early, late in {(source.value, source.mesh, target.mesh) for source, target in moves}:
        found[early, late] += plan.values[value].num_bytes
    return found


@pytest.mark.parametrize(("name", "num_stages", "num_parts"), [("llama", 2, 1), ("llama", 4, 2), ("gpt", 2, 1)])
def test_of_each_layer_only_its_output_and_its_gradient_cross(name: str, num_stages: int, num_parts: int) -> None:
    """RMS normalization reads its input, its weight last: only the weight says to which stage it belongs."""
    torch.manual_seed(0)
    module, inputs = getattr(models, name)(layers=num_stages, hidden=16, sequence=8)
    found = example_of(module, inputs)
    plan = PLANNERS["megatron"](found.program, even_cluster(num_stages), tp=1, pp=num_stages, microbatches=num_parts)
    assert_equal_to_one_device(found, plan)
    num_bytes = 8 * 8 * 16 * 8  # [batch, sequence, hidden] of float64
    between = [(f"stage{stage}", f"stage{stage + 1}") for stage in range(num_stages - 1)]
    assert _crossing(plan) == dict.fromkeys([*between, *((late, early) for early, late in between)], num_bytes)


class _Widened(nn.Module):
    """Between its layers, what goes from one to the other gets twice as wide: by a product, or by a copy."""

    def __init__(self, *, is_product: bool) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 32), nn.Linear(64, 1)
        self._is_product = is_product

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.one(x)
        return self.other(y @ y.t() if self._is_product else torch.cat([y, -y], dim=1)).sum()


@pytest.mark.parametrize(("is_product", "num_columns"), [(True, 64), (False, 32)])
def test_what_computes_much_stays_in_its_stage(is_product: bool, num_columns: int) -> None:
    found = example_of(_Widened(is_product=is_product), (torch.randn(64, 8, dtype=torch.float64),))
    plan = PLANNERS["megatron"](found.program, even_cluster(2), tp=1, pp=2)
    assert_equal_to_one_device(found, plan)
    num_bytes = 64 * num_columns * 8
    assert _crossing(plan) == {("stage0", "stage1"): num_bytes, ("stage1", "stage0"): num_bytes}


class _Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x.sum()


def test_a_cluster_of_another_size_is_refused() -> None:
    with pytest.raises(PlanError, match=r"3 x 2 x 1 ranks \(data, tensor, pipeline\) are wanted, and 1:1 has 2"):
        PLANNERS["megatron"](example("gpt").program, even_cluster(2), dp=3, tp=2)
    with pytest.raises(PlanError, match="has 2 layers, too few for 4 stages"):
        PLANNERS["megatron"](example_of(_Two(), (torch.randn(4, 8).double(),)).program, even_cluster(4), pp=4)


class _Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(self.one(x)).sum()
