"""Correct plans pass every tier, and what operations mean to the verifier is what torch computes."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from dyorc.errors import PlanError
from dyorc.planner.cluster import even_cluster
from dyorc.planner.models import gpt
from dyorc.planner.plan import Apply, Collective, CollectiveKind, MeshAxis, Plan, PlanBuilder
from dyorc.planner.plan.plan_file import plan_from_json, plan_to_json
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import (
    PARTIAL,
    REPLICATE,
    Node,
    Strategy,
    TensorProgram,
    ValueKind,
    axes_of,
    capture,
    repeat_layers,
    strategies_of,
)
from dyorc.planner.program.evaluate import compute_node
from dyorc.planner.program.graph import rename_values
from dyorc.planner.verify import Tier, verify
from dyorc.planner.verify.algebra import NumbersAlgebra
from dyorc.planner.verify.cases import CasesOf
from dyorc.planner.verify.field import PRIME, Field
from dyorc.planner.verify.plan_index import PlanIndex
from dyorc.planner.verify.proof import ProofTier
from dyorc.planner.verify.randomized import FieldTier
from dyorc.planner.verify.report import Finding, FindingKind
from tests.unit.planner.examples import Example, example
from tests.unit.planner.plans import greedy


@pytest.mark.parametrize(("ratios", "num_parts"), [((3, 1), 1), ((1, 0, 2), 1), ((1, 1), 2)])
@pytest.mark.parametrize("name", ["gpt", "net"])
def test_correct_plans_have_no_findings(name: str, ratios: tuple[float, ...], num_parts: int) -> None:
    found = example(name)
    report = verify(found.program, greedy(found, ratios, num_parts))
    assert report.is_proved, str(report)


def test_a_report_says_what_each_tier_checked_and_how_long_that_took() -> None:
    program, plan = example("gpt").program, greedy(example("gpt"), (1, 1), 1)
    text = str(verify(program, plan))
    assert re.match(rf"\w+: proved\n  structure +\d+\.\d\d s  names, order and layouts of all {len(plan.steps)} steps\n", text)
    assert re.search(r"field +\d+\.\d\d s  \d+ distinct steps on random elements of a finite field; the whole plan, too\n", text)
    assert re.search(r"proof +\d+\.\d\d s  \d+ distinct steps as formulas, \d+ of them decided by the solver$", text)
    broken = replace(plan, steps=plan.steps[:-30])
    assert re.search(r"\d+ findings\n(.|\n)*\n  result \S+: ", str(verify(program, broken, tiers=[Tier.STRUCTURE])))


@pytest.mark.parametrize(("name", "kind"), [("gpt", ProofTier), ("net", ProofTier), ("net", FieldTier)])
def test_each_strategy_of_each_operation_is_right_and_others_are_not(name: str, kind: type[FieldTier | ProofTier]) -> None:
    found = example(name)
    axes = axes_of(found.program)
    num_wrong, tier, checked = 0, kind(), set[object]()
    for node in found.program.nodes:
        what = (node.op, *(found.program.values[name].shape if name else () for name in (*node.inputs, *node.outputs)))
        if what in checked:
            continue
        checked.add(what)
        strategies = strategies_of(found.program, node, axes)
        can_be_sum = bool(node.inputs) and all(found.program.values[name].dtype != "bool" for name in node.outputs if name)
        right = {(strategy.inputs, strategy.outputs) for strategy in strategies}
        for strategy in strategies:
            assert not _findings(found, node, strategy, tier), (node, strategy)
            for wrong in _spoiled(strategy, can_be_sum):
                if (wrong.inputs, wrong.outputs) not in right:
                    num_wrong += 1
                    assert _findings(found, node, wrong, tier), (node, wrong)
    assert num_wrong > 50


def _spoiled(strategy: Strategy, can_be_sum: bool) -> list[Strategy]:
    """A strategy with its outputs called something else."""
    found = [replace(strategy, outputs=tuple(REPLICATE for _ in strategy.outputs))]
    if can_be_sum and PARTIAL not in strategy.outputs:
        found.append(replace(strategy, outputs=tuple(PARTIAL for _ in strategy.outputs)))
    return [wrong for wrong in found if wrong.outputs != strategy.outputs]


def _findings(found: Example, node: Node, strategy: Strategy, tier: FieldTier | ProofTier) -> list[Finding]:
    builder = PlanBuilder(found.program)
    builder.mesh("ranks", [MeshAxis(name="rank", size=2)], range(2), {"rank": (3, 1)})
    for name, placement in zip(node.inputs, strategy.inputs, strict=True):
        builder.source(name, "ranks", [placement])
    outputs = tuple(p if name else REPLICATE for name, p in zip(node.outputs, strategy.outputs, strict=True))
    builder.apply(node, "ranks", [replace(strategy, outputs=outputs)])
    plan = builder.draft()
    return list(tier.check_steps(CasesOf(PlanIndex(found.program, plan)), plan))


_LINEAR = {"embedding", "embedding_dense_backward", "add", "sub", "mul", "mm", "bmm", "sum", "view", "permute", "expand", "slice"}
_LINEAR |= {"select", "cat", "gather", "scatter", "where", "neg", "full", "constant_pad_nd", "split_with_sizes", "_to_copy"}


@pytest.mark.parametrize("name", ["gpt", "net"])
def test_exact_operations_mean_what_torch_computes(name: str) -> None:
    program = example(name).program
    torch.manual_seed(0)
    algebra, checked = NumbersAlgebra(Field()), set[str]()
    for node in program.nodes:
        op = node.op.split(".")[1]
        if op not in _LINEAR:
            continue
        tensors: dict[str, torch.Tensor] = {}
        for value in node.inputs:
            tensors[value] = torch.randint(0, 2, program.values[value].shape).to(getattr(torch, program.values[value].dtype))
        shape = program.values[node.outputs[0]].shape
        expected = compute_node(node, tensors, shape)[node.outputs[0]]
        (got,) = algebra.compute(node.op, node.arguments, node.keywords, {k: _elements(t) for k, t in tensors.items()}, shape)
        if torch.isfinite(expected).all() and (expected == expected.double().round()).all():
            np.testing.assert_array_equal(got, _elements(expected), err_msg=str(node))
            checked.add(op)
    assert len(checked) > 7


def _elements(tensor: torch.Tensor) -> np.ndarray:
    array = tensor.numpy()
    return array if array.dtype == np.bool_ else array.astype(np.int64) % PRIME


def _finds(plan: Plan, kind: FindingKind) -> bool:
    return any(finding.kind is kind for finding in verify(example("gpt").program, plan, tiers=[Tier.STRUCTURE]).findings)


def test_structure_sees_what_is_read_too_early_or_never_made_or_something_else() -> None:
    plan = greedy(example("gpt"), (1, 1), 2)
    sums = [
        number
        for number, step in enumerate(plan.steps)
        if isinstance(step, Collective) and step.axis == "part" and step.kind is CollectiveKind.ALL_REDUCE
    ]
    last = next(n for n in range(sums[0], -1, -1) if plan.steps[sums[0]].source in plan.steps[n].outputs)
    steps = list(plan.steps)
    steps[last], steps[sums[0]] = steps[sums[0]], steps[last]
    assert _finds(replace(plan, steps=tuple(steps)), FindingKind.SCHEDULE_HAZARD)
    assert _finds(replace(plan, steps=(*plan.steps[: sums[0]], *plan.steps[sums[0] + 1 :])), FindingKind.MISSING_PRODUCER)
    row = next(n for n, step in enumerate(plan.steps) if isinstance(step, Apply) and step.op == "aten._softmax.default")
    other = replace(plan.steps[row], arguments=(plan.steps[row].arguments[0], -2, False))
    assert _finds(replace(plan, steps=(*plan.steps[:row], other, *plan.steps[row + 1 :])), FindingKind.WRONG_OPERATION)


def test_a_step_without_outputs_is_found_and_is_no_plan_in_a_file() -> None:
    program, plan = example("gpt").program, greedy(example("gpt"), (1, 1), 1)
    row = next(number for number, step in enumerate(plan.steps) if isinstance(step, Apply))
    for outputs in ((), ("",)):
        wrong = replace(plan, steps=(*plan.steps[:row], replace(plan.steps[row], outputs=outputs), *plan.steps[row + 1 :]))
        report = verify(program, wrong)
        assert not report.is_proved
        assert f"step {row}, node {plan.steps[row].node}, has no output" in map(str, report.findings)
        with pytest.raises(PlanError, match="has no output"):
            plan_from_json(plan_to_json(wrong))


@cache
def _of_two_layers() -> TensorProgram:
    module, inputs = gpt(layers=2, hidden=16, sequence=8, batch=4)
    return capture(module, inputs)


def _in_layer(plan: Plan, program: TensorProgram, layer: int) -> list[int]:
    """The steps that compute a layer's nodes, forwards and backwards, of one part of the work."""
    nodes = program.node_named
    numbers = [n for n, s in enumerate(plan.steps) if isinstance(s, Apply) and s.part == 1 and nodes[s.node].layer == layer]
    assert len(numbers) > 50
    return numbers


def _of_layer_before(plan: Plan, program: TensorProgram, step: Apply) -> Apply | None:
    """Reads the parameter of the layer before in place of its own."""
    for tensor in step.inputs:
        value = plan.tensors[tensor].value
        other = tensor.replace("layers.2.", "layers.1.")
        if program.values[value].kind is ValueKind.PARAMETER and other != tensor and other in plan.tensors:
            arguments = tuple(rename_values(argument, {tensor: other}) for argument in step.arguments)
            return replace(step, arguments=arguments)
    return None


def test_a_fault_in_one_of_many_equal_layers_is_found() -> None:
    program = repeat_layers(_of_two_layers(), 4)
    plan = PLANNERS["megatron"](program, even_cluster(4), dp=2, tp=2, pp=1, microbatches=2)
    assert verify(program, plan, tiers=[Tier.STRUCTURE]).findings == ()
    num_tried = 0
    for number in _in_layer(plan, program, 2)[::12]:
        step = plan.steps[number]
        assert isinstance(step, Apply)
        others = [
            [replace(step, op="aten.tanh.default")],
            [replace(step, arguments=(*step.arguments, True))],
            [replace(step, part=0)],
            [],
            [step, step],
        ]
        for other in others:
            mutant = replace(plan, steps=(*plan.steps[:number], *other, *plan.steps[number + 1 :]))
            assert verify(program, mutant, tiers=[Tier.STRUCTURE]).findings, (step, other)
            num_tried += 1
    assert num_tried >= 40
    swapped = [(n, s) for n in _in_layer(plan, program, 2) if (s := _of_layer_before(plan, program, plan.steps[n])) is not None]
    for number, step in swapped[:3]:
        mutant = replace(plan, steps=(*plan.steps[:number], step, *plan.steps[number + 1 :]))
        assert any(f.kind is FindingKind.WRONG_OPERATION for f in verify(program, mutant, tiers=[Tier.STRUCTURE]).findings), step
    assert swapped


def test_more_layers_have_no_more_distinct_steps() -> None:
    programs = [repeat_layers(_of_two_layers(), count) for count in (3, 6)]
    plans = [PLANNERS["megatron"](program, even_cluster(2), dp=1, tp=2, pp=1, microbatches=1) for program in programs]
    cases = [CasesOf(PlanIndex(program, plan)).distinct for program, plan in zip(programs, plans, strict=True)]
    assert len(plans[1].steps) > 1.5 * len(plans[0].steps)
    assert len(cases[0]) == len(cases[1])
