"""Uneven shares and two microbatches in one plan: equal to one device, and never slower than HAP or HiDup alone."""

import pytest
import torch

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.cluster.small import even_cluster, uneven_cluster
from dyorc.planner.models import gpt
from dyorc.planner.plan import Plan, SearchEnd
from dyorc.planner.planners import Progress
from dyorc.planner.planners.baselines.data_parallel import dp_even, dp_proportional, zero
from dyorc.planner.planners.baselines.megatron import megatron
from dyorc.planner.planners.duplex_hap import choices_of_program, duplex_hap
from dyorc.planner.planners.exhaustive import exhaustive
from dyorc.planner.planners.hidup import Duplex
from dyorc.planner.planners.hidup.shares import best_shares
from dyorc.planner.program import TensorProgram, capture
from dyorc.planner.simulate import simulate
from tests.unit.planner.examples import example
from tests.unit.planner.planned import assert_equal_to_one_device
from tests.unit.planner.tiny import Scale, Tiny

_ALONE = (dp_even, dp_proportional, zero, megatron)


def _quick(program: TensorProgram, cluster: Cluster, progress: Progress | None = None) -> Plan:
    known = [planner(program, cluster) for planner in _ALONE]
    return duplex_hap(program, cluster, known=known, max_states=4, max_rounds=2, progress=progress)


@pytest.mark.parametrize("speeds", [(1.0, 1.0), (3.0, 1.0), (3.0, 1.0, 1e-6, 1.0)], ids=str)
def test_the_combination_is_equal_to_one_device_and_never_slower_than_either_alone(speeds: tuple[float, ...]) -> None:
    found = example("net")
    cluster = uneven_cluster(speeds, flops_per_s=1e9, bytes_per_s=1e9)
    plan = _quick(found.program, cluster)
    assert_equal_to_one_device(found, plan)
    total_s = simulate(plan, found.program, cluster).total_s
    assert total_s == plan.provenance.cost_s
    for planner in _ALONE:
        assert total_s <= simulate(planner(found.program, cluster), found.program, cluster).total_s
    totals = [float(each) for name, each in plan.provenance.notes.items() if name.startswith("best_")]
    assert total_s <= min(totals) * (1 + 1e-8)  # notes are rounded


def test_uneven_shares_with_overlap_beat_both_alone_where_ranks_differ() -> None:
    program = capture(*gpt(layers=1, hidden=128, heads=4, vocabulary=512, sequence=32, batch=12))
    plan = _quick(program, uneven_cluster([2, 1], flops_per_s=5e11, bytes_per_s=1e9))
    assert plan.provenance.planner == "duplex_hap"
    totals = {name: float(each) for name, each in plan.provenance.notes.items() if name.startswith("best_")}
    assert totals.pop("best_duplex_hap_s") < 0.8 * min(totals.values())


def test_shares_are_as_good_as_the_best_of_a_grid() -> None:
    program = example("net").program
    duplex = Duplex(program, uneven_cluster([3, 1], flops_per_s=1e9, bytes_per_s=1e9), {})
    found = next(duplex.searches((1.0, 1.0), 4))
    assignment = choices_of_program(found, duplex)
    grid = {share: duplex.time_assignment(assignment, (share, 1 - share)).cost_s for share in (0.0, 0.25, 0.5, 0.75, 1.0)}
    ratios = best_shares(found, duplex.costs((1.0, 1.0)))
    assert sum(ratios) == pytest.approx(1.0)
    assert duplex.time_assignment(assignment, ratios).cost_s <= min(grid.values()) * (1 + 1e-9)


def test_exhaustive_search_is_never_slower_than_what_it_includes() -> None:
    program = capture(Scale(), [torch.zeros(64, 1)])
    cluster = even_cluster(2, flops_per_s=1e5, bytes_per_s=1e9)
    best = exhaustive(program, cluster, max_plans=2_000)
    for planner in _ALONE[:2]:
        assert best.provenance.cost_s is not None
        assert best.provenance.cost_s <= simulate(planner(program, cluster), program, cluster).total_s
    with pytest.raises(PlanError, match=r"Scale has .* plans, and at most 10 are tried"):
        exhaustive(program, cluster, max_plans=10)


def test_an_interrupted_combination_keeps_the_best_plan() -> None:
    def interrupt(done: float, best_s: float | None) -> None:
        raise KeyboardInterrupt

    plan = _quick(example("net").program, even_cluster(2, flops_per_s=1e9), progress=interrupt)
    assert plan.provenance.planner != "duplex_hap"
    assert plan.provenance.ended is SearchEnd.INTERRUPTED


def test_a_batch_that_cannot_be_halved_leaves_the_planners_alone() -> None:
    program = capture(Tiny(2), [torch.zeros(3, 8)])
    plan = _quick(program, even_cluster(2))
    assert plan.provenance.planner != "duplex_hap"
    assert "no microbatches" in plan.provenance.notes
