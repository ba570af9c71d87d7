"""Each faulty plan is found, by the tier that should see it; what is no fault is proved."""

from dataclasses import replace
from functools import cache

import pytest

from benchmarks.papers.mutants import MUTATIONS, NUM_PUBLISHED, Outcome, outcomes
from dyorc.planner.cluster import even_cluster, one_machine
from dyorc.planner.passes.channels import with_channels
from dyorc.planner.passes.coconet import overlap_products
from dyorc.planner.plan import ChannelKind, Collective, CollectiveKind, Plan
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import Shard
from dyorc.planner.verify import Tier, verify
from tests.unit.planner.examples import example

pytestmark = pytest.mark.together  # they share the outcomes

_ONLY_PROOF = {
    "1 missing all-reduce, data still flow",
    "5 operation lacks its reduction",
    "12 whole said to be a sum: scaled by the ranks",
    "missing all-gather, data still flow",
    "collective's target split along another dimension",
}
"""What structure cannot see: names, order and layouts fit, and the numbers do not."""


def _plans() -> list[Plan]:
    program = example("gpt").program
    pipeline = PLANNERS["megatron"](program, even_cluster(8), dp=2, tp=2, pp=2, microbatches=2)
    server = PLANNERS["parameter_server"](program, even_cluster(2), servers=1)
    static = with_channels(server, one_machine(2), [ChannelKind.STATIC])
    products = overlap_products(PLANNERS["megatron"](program, even_cluster(2)), program, 2)
    return [pipeline, PLANNERS["zero"](program, even_cluster(2)), static, products]


@cache
def _found() -> dict[str, Outcome]:
    return {outcome.name: outcome for outcome in outcomes(example("gpt").program, _plans(), (Tier.STRUCTURE, Tier.PROOF))}


def test_there_are_the_published_faults_and_at_least_twenty_more() -> None:
    assert NUM_PUBLISHED == 14
    assert len(MUTATIONS) >= 34
    assert list(_found()) == list(MUTATIONS)


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_fault_is_found(name: str) -> None:
    kinds = _found()[name].kinds
    assert bool(kinds[Tier.STRUCTURE]) == (name not in _ONLY_PROOF), kinds
    assert kinds[Tier.STRUCTURE] or kinds[Tier.PROOF], name


def test_a_result_that_is_cut_elsewhere_is_another_plan_and_no_fault() -> None:
    program, plan = example("gpt").program, _plans()[1]
    for step in plan.steps:
        if isinstance(step, Collective) and step.kind is CollectiveKind.REDUCE_SCATTER and step.target in plan.results.values():
            placed = plan.tensors[step.target]
            (cut,), shape = placed.layout, plan.values[placed.value].shape
            assert isinstance(cut, Shard)
            if len(shape) == 2 and shape[1 - cut.dim] % 2 == 0:
                sizes = (shape[1 - cut.dim] // 2,) * 2
                other = replace(placed, layout=(Shard(1 - cut.dim, sizes),))
                assert verify(program, replace(plan, tensors={**plan.tensors, step.target: other})).is_proved
                return
    raise AssertionError("no gradient is scattered")
