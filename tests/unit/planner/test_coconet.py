"""CoCoNeT's transformations compute the same, move and keep less, and are refused where they would not compute the same."""

import re
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

from benchmarks.papers.schedule_figures import figures_of
from dyorc.errors import PlanError
from dyorc.planner.cluster import even_cluster
from dyorc.planner.passes.coconet import (
    Rewriting,
    candidates_of,
    coconet,
    fuse_updates,
    overlap_products,
    slice_updates,
    use_rings,
)
from dyorc.planner.plan import Algorithm, Apply, Collective, CollectiveKind, Plan
from dyorc.planner.plan.interpret import interpret
from dyorc.planner.plan.kernels import parts_of
from dyorc.planner.plan.on_torch import TorchAlgebra
from dyorc.planner.plan.plan_file import plan_from_json, plan_to_json
from dyorc.planner.planners.baselines.data_parallel import dp_even
from dyorc.planner.planners.baselines.megatron import megatron
from dyorc.planner.program import capture, evaluate
from dyorc.planner.program.graph import ValueKind
from dyorc.planner.program.update import Optimizer, with_update
from dyorc.planner.simulate import simulate
from dyorc.planner.verify import verify
from dyorc.planner.verify.report import FindingKind
from tests.unit.planner.examples import Example, example_of
from tests.unit.planner.planned import assert_equal_to_one_device

_W = "w@stage0:R"


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(64, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.w).square().sum()


@cache
def trained(optimizer: Optimizer) -> Example:
    """A matrix and its optimizer."""
    torch.manual_seed(0)
    module, x = _Model().double(), torch.randn(8, 64, dtype=torch.float64)
    program = with_update(capture(module, (x,)), optimizer)
    states = [name for name in program.sources if program.values[name].kind is ValueKind.STATE]
    sources = {"w": module.w.detach(), program.inputs[0]: x}
    sources |= {name: torch.rand(program.values[name].shape, dtype=torch.float64) for name in states}
    return Example(program, sources, evaluate(program, sources), module, (x,))


class _Block(nn.Module):
    """Two products, the second of which ranks add up, and what is added to their sum."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randint(-3, 4, (columns, 16), dtype=torch.float64))
        self.down = nn.Parameter(torch.randint(-3, 4, (16, columns), dtype=torch.float64))
        self.bias = nn.Parameter(torch.ones(columns, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((x @ self.up).relu() @ self.down + self.bias + x).square().sum()


@cache
def multiplied(columns: int = 8) -> Example:
    """A block of whole numbers, so that every order of additions gives the same bits."""
    torch.manual_seed(0)
    return example_of(_Block(columns), (torch.randint(-3, 4, (4, 3, columns), dtype=torch.float64),))


def split_by_columns(found: Example, num_ranks: int) -> Plan:
    """Returns a plan that splits its matrices, so that ranks have terms of a sum."""
    return megatron(found.program, even_cluster(num_ranks))


def _plan(optimizer: Optimizer = "adam", num_ranks: int = 4) -> Plan:
    return dp_even(trained(optimizer).program, even_cluster(num_ranks))


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_every_schedule_computes_what_one_device_computes(optimizer: Optimizer, num_ranks: int) -> None:
    found = trained(optimizer)
    for candidate in candidates_of(_plan(optimizer, num_ranks), found.program, even_cluster(num_ranks), chunks=(3,)):
        assert_equal_to_one_device(found, candidate.plan)


def test_states_lie_in_slices_and_only_the_parameter_is_gathered() -> None:
    program = trained("adam").program
    plan = slice_updates(_plan(), program)
    assert [str(step.kind) for step in plan.steps if isinstance(step, Collective) and "w" in step.source] == [
        "slice",
        "all_gather",
    ]
    for name in ("w.mean", "w.square"):
        (tensor,) = plan.sources[name]
        assert str(plan.tensors[tensor].layout[0]) == "S0(16*4)"
    assert plan.sources["w"] == (_W,)


def test_a_kernel_is_all_that_the_optimizer_does_and_needs_no_temporaries_but_a_chunk() -> None:
    program, cluster = trained("adam").program, even_cluster(4, flops_per_s=1e9, bytes_per_s=1e8)
    plan = _plan()
    (kernel,) = fuse_updates(plan, program, 4).kernels
    assert kernel.end - kernel.first == 1 + 14 + 1  # all that Adam does to a parameter
    plans = (plan, slice_updates(plan, program), fuse_updates(plan, program, 4))
    whole, slices, chunks = (max(simulate(each, program, cluster).peak_bytes) for each in plans)
    assert max(slices, chunks) < whole, (whole, slices, chunks)
    num_bytes = 64 * 8 * 8 // 4  # of a slice: of those that Adam makes, at most six are there at a time
    parts = parts_of(plans[2], kernel)
    assert parts.live_bytes(plans[2], lambda _: num_bytes) == 6 * num_bytes
    again = plan_from_json(plan_to_json(plans[2]))
    assert again.kernels == (kernel,)


def test_the_quickest_schedule_is_taken_and_measured_if_wanted() -> None:
    program, cluster = trained("adam").program, even_cluster(4, flops_per_s=1e6, bytes_per_s=1e7)
    found = candidates_of(_plan(), program, cluster)
    assert found[-1].name == "AR-C"
    assert found[0].name.startswith("overlapped")
    assert coconet(_plan(), program, cluster).provenance.notes["coconet"] == found[0].name
    measured: list[Plan] = []

    def measure(plan: Plan) -> float:
        measured.append(plan)
        return -float(len(measured))

    tried = [*found[:2], found[-1]]  # and the plan as it was
    assert coconet(_plan(), program, cluster, measure=measure).provenance.notes["coconet"] == tried[-1].name
    assert measured == [one.plan for one in tried]


def test_what_would_not_compute_the_same_is_refused() -> None:
    program, plan = trained("adam").program, _plan()
    gradient = plan.results[program.gradients["w"]]
    rewriting = Rewriting(plan, program)
    with pytest.raises(
        PlanError, match=r"split: w.next@stage0:R is made by w.next \(aten.sub.Tensor\), and a all_reduce of ranks"
    ):
        rewriting.split("w.next@stage0:R")
    with pytest.raises(PlanError, match=r"reorder: .* is made by a all_reduce along data"):
        rewriting.reorder(gradient)
    with pytest.raises(PlanError, match=r"split: sum_1, of shape .*, cannot be cut along data"):
        rewriting.split(plan.results[program.loss])
    with pytest.raises(PlanError, match=r"as_slice: nothing is neither changed by the step nor a result"):
        rewriting.as_slice("nothing")
    scattered = rewriting.split(gradient)
    with pytest.raises(PlanError, match=r"as_slice w.mean: w.mean.next@stage0:R is made by w.mean.next"):
        rewriting.as_slice("w.mean")
    gathered = rewriting.reorder(gradient)
    with pytest.raises(PlanError, match=r"fuse: w.mean.next .* reads w.mean.added@stage0:R before the kernel ends"):
        rewriting.fuse(scattered)
    for name in gathered:
        rewriting.reorder(name)
    with pytest.raises(PlanError, match=r"as_slice: w.mean.kept .* reads all of w.mean"):
        rewriting.as_slice("w.mean")
    with pytest.raises(PlanError, match=r"no gradient of .* is all-reduced for the optimizer alone"):
        coconet(slice_updates(plan, program), program, even_cluster(4))


def test_a_kernel_that_is_none_is_refused() -> None:
    program = trained("adam").program
    plan = fuse_updates(_plan(), program, 4)
    (kernel,) = plan.kernels
    for wrong in (replace(kernel, first=kernel.first - 1), replace(kernel, end=kernel.end + 1), replace(kernel, num_chunks=0)):
        with pytest.raises(PlanError, match=r"the kernel of steps"):
            simulate(replace(plan, steps=(*plan.steps, plan.steps[-2]), kernels=(wrong,)), program, even_cluster(4))


def test_rings_are_asked_for_everywhere() -> None:
    plan = use_rings(_plan())
    assert {str(step.algorithm) for step in plan.steps if isinstance(step, Collective)} == {"ring"}


def test_a_kernel_of_what_is_not_computed_element_by_element_is_refused() -> None:
    """The plan is right, and its kernel is not: a product of matrices in the middle would see a chunk of its rows."""
    program = trained("adam").program
    plan = fuse_updates(_plan(), program, 4)
    (kernel,) = plan.kernels
    product = next(node for node in program.nodes if node.op == "aten.mm.default")
    at, step = next((n, s) for n, s in enumerate(plan.steps) if isinstance(s, Apply) and s.node == "w.change")
    wrong = replace(plan, steps=(*plan.steps[:at], replace(step, node=product.name), *plan.steps[at + 1 :]))
    assert kernel.first < at < kernel.end
    found = [finding for finding in verify(program, wrong).findings if finding.kind is FindingKind.BAD_KERNEL]
    assert f"runs {product.name} (aten.mul.Tensor) in chunks, which does not compute element by element" in str(found[0])


@pytest.mark.parametrize(("columns", "num_ranks"), [(8, 2), (8, 3), (2, 3)])
def test_a_product_that_is_made_while_its_sum_goes_round_is_the_same_to_the_bit(columns: int, num_ranks: int) -> None:
    """On three ranks slices have 3, 3 and 2 columns, or 1, 1 and none."""
    found = multiplied(columns)
    plan = overlap_products(split_by_columns(found, num_ranks), found.program, 2)
    assert_equal_to_one_device(found, plan)
    results = interpret(plan, found.sources, TorchAlgebra())
    assert all(torch.equal(results[name], tensor) for name, tensor in found.results.items())
    (kernel,) = plan.kernels
    assert kernel.overlap is not None
    assert kernel.overlap.order == tuple(range(num_ranks))[::-1]
    steps = plan.steps[kernel.first : kernel.end]
    names = [step.node if isinstance(step, Apply) else str(step.kind) for step in steps]
    assert names == ["mm_1", "view_6", "add", "reduce_scatter", "add_1", "all_gather"]  # the input is added to slices of the sum
    assert plan_from_json(plan_to_json(plan)).kernels == plan.kernels


def test_the_product_of_a_gradient_its_ring_and_the_optimizer_are_one_kernel() -> None:
    found = trained("adam")
    plan = overlap_products(_plan(), found.program, 3)
    assert_equal_to_one_device(found, plan)
    (kernel,), (without,) = plan.kernels, fuse_updates(_plan(), found.program, 3).kernels
    assert kernel.end - kernel.first == without.end - without.first + 1
    whole, made = figures_of(_plan(), found.program), figures_of(plan, found.program)
    assert made.wire_bytes == whole.wire_bytes


@pytest.mark.parametrize(("flops_per_s", "is_hidden"), [(1e6, "ring"), (1e9, "product")])
def test_of_a_product_and_its_ring_the_longer_is_what_it_takes(flops_per_s: float, is_hidden: str) -> None:
    found, num = multiplied(), 2
    cluster = even_cluster(num, flops_per_s=flops_per_s, bytes_per_s=1e6, latency_s=0.0)
    plan = split_by_columns(found, num)
    whole_s, made_s = (simulate(p, found.program, cluster).total_s for p in (plan, overlap_products(plan, found.program, 4)))
    num_bytes = 4 * 3 * 8 * 8
    product_s, ring_s = 2 * 4 * 3 * 8 * 16 / num / flops_per_s, 2 * (num - 1) / num * num_bytes / 1e6
    assert (product_s < ring_s) == (is_hidden == "product")
    saved_s = whole_s - made_s
    shorter_s = min(product_s, ring_s)
    assert 0.6 * shorter_s < saved_s <= shorter_s * 1.05


def test_a_product_that_cannot_be_made_in_slices_is_not_overlapped() -> None:
    found = multiplied()
    program, plan = found.program, split_by_columns(found, 2)
    reduced = next(s.target for s in plan.steps if isinstance(s, Collective) and s.kind is CollectiveKind.ALL_REDUCE)
    rewriting = Rewriting(plan, program)
    with pytest.raises(PlanError, match=r"split: add, of shape .4, 3, 8., cannot be cut along tensor"):
        rewriting.split(reduced, 7)
    scattered = rewriting.split(reduced, 0)  # whole samples: what is reduced is a view of rows, three of which are one
    with pytest.raises(PlanError, match=rf"overlap: {re.escape(scattered)} is not made by a kernel: fuse it first"):
        rewriting.overlap(scattered)
    rewriting.fuse(scattered)
    with pytest.raises(PlanError, match=r"overlap: add@stage0:P is not made by a product .* in slices along dimension 0"):
        rewriting.overlap(scattered)
    whole = replace(plan, results={**plan.results, "mm_1": "mm_1@stage0:P"})
    with pytest.raises(PlanError, match=r"no product of .* is all-reduced that could be computed in slices"):
        overlap_products(whole, program, 1)


def test_a_kernel_whose_slices_do_not_fit_the_ring_is_found() -> None:
    found = multiplied()
    plan = overlap_products(split_by_columns(found, 3), found.program, 2)
    (kernel,) = plan.kernels
    overlap = kernel.overlap
    assert overlap is not None
    scatter = kernel.first + overlap.num_steps
    step = plan.steps[scatter]
    assert isinstance(step, Collective)
    others = {
        r"makes its slices in the order \[0, 1, 2\]; the ring sends them in \[2, 1, 0\]": replace(overlap, order=(0, 1, 2)),
        r"runs mm_1 \(aten.mm.default\) slice by slice, which cannot be cut so": replace(
            overlap, cuts={name: dim for name, dim in overlap.cuts.items() if not name.startswith("down")}
        ),
        "does not make add@stage0:P in slices along dimension 2": replace(overlap, cuts={**overlap.cuts, step.source: 1}),
        "begin with a reduce-scatter": replace(overlap, num_steps=1),
    }
    for text, wrong in others.items():
        findings = verify(found.program, replace(plan, kernels=(replace(kernel, overlap=wrong),))).findings
        assert any(finding.kind is FindingKind.BAD_KERNEL and re.search(text, str(finding)) for finding in findings), (
            text,
            findings,
        )
    padded = replace(step, algorithm=Algorithm.PADDED)
    with pytest.raises(PlanError, match="makes what it reduces while it sends, which only a ring does; its algorithm is padded"):
        simulate(replace(plan, steps=(*plan.steps[:scatter], padded, *plan.steps[scatter + 1 :])), found.program, even_cluster(3))
    with pytest.raises(PlanError, match="the rank at 0 makes slice 1 of a sum while slice 2 comes round the ring"):
        interpret(
            replace(plan, kernels=(replace(kernel, overlap=replace(overlap, order=(0, 1, 2))),)), found.sources, TorchAlgebra()
        )
