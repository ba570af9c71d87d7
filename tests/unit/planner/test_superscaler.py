"""Plans that people write: right whatever they say, and as good as the published ones claim to be."""

from functools import cache

import pytest
import torch

from benchmarks.papers.models import recycled
from dyorc.errors import PlanError
from dyorc.planner.cluster import even_cluster
from dyorc.planner.models import gpt
from dyorc.planner.plan import Apply, Plan
from dyorc.planner.plan.rewrites import communicate_early
from dyorc.planner.plan.show import summary_of
from dyorc.planner.planners.baselines.data_parallel import dp_even
from dyorc.planner.planners.baselines.megatron import megatron
from dyorc.planner.planners.superscaler.coshard import coshard
from dyorc.planner.planners.superscaler.pipelines import interlaced, three_forward_one_backward
from dyorc.planner.planners.superscaler.recipe import Cut, Recipe
from dyorc.planner.program import capture
from dyorc.planner.simulate import simulate
from tests.unit.planner.examples import Example, example, example_of
from tests.unit.planner.planned import assert_equal_to_one_device


@cache
def _two_layers() -> Example:
    module, inputs = gpt(layers=2, hidden=16, vocabulary=32, sequence=8)
    return example_of(module, inputs)


def _sent(plan: Plan) -> dict[str, int]:
    """The bytes of each kind of communication."""
    return {
        one.kind: one.num_bytes for one in summary_of(plan).communications if "slice" not in one.kind and "time" not in one.kind
    }


@pytest.mark.parametrize(("num_ranks", "parts"), [(1, 2), (2, 2), (2, 4), (4, 2)])
@pytest.mark.parametrize("recompute", [True, False])
def test_coshard_computes_what_one_device_computes(num_ranks: int, parts: int, recompute: bool) -> None:
    found = _two_layers()
    plan = coshard(found.program, even_cluster(num_ranks), parts=parts, recompute=recompute)
    assert_equal_to_one_device(found, plan)


def test_coshard_cuts_layers_that_need_something_of_each_other_by_way_of_others() -> None:
    """Each layer of Swin by itself could run at one go, but not both."""
    found = example("swin")
    assert_equal_to_one_device(found, coshard(found.program, even_cluster(2)))


def test_coshard_needs_less_memory_and_communicates_as_much() -> None:
    """Where activations are most of the memory. The terms of gradients, one for each part, are all kept until they are summed."""
    module, inputs = gpt(layers=2, hidden=16, vocabulary=16, sequence=64)
    program, cluster = capture(module, inputs), even_cluster(2)
    plain = dp_even(program, cluster)
    recomputed, cosharded = (coshard(program, cluster, parts=parts) for parts in (1, 4))
    peaks = [max(simulate(plan, program, cluster).peak_bytes) for plan in (plain, recomputed, cosharded)]
    assert peaks[2] < 0.7 * peaks[1] < peaks[0], peaks
    assert _sent(cosharded) == _sent(recomputed) == _sent(plain)


@cache
def _recycled() -> Example:
    torch.manual_seed(0)
    module, inputs = recycled()
    return example_of(module, tuple(x.double() for x in inputs))


@pytest.mark.parametrize(("num_ranks", "microbatches"), [(1, 2), (2, 1), (2, 4), (4, 2)])
def test_the_interlaced_pipeline_computes_what_one_device_computes(num_ranks: int, microbatches: int) -> None:
    found = _two_layers()
    plan = interlaced(found.program, even_cluster(num_ranks), microbatches=microbatches)
    assert_equal_to_one_device(found, plan)


def test_sharing_the_embedding_is_quicker_and_takes_less_memory_than_stages_that_hold_it() -> None:
    module, inputs = gpt(layers=4, hidden=64, vocabulary=4096, sequence=16, batch=16)
    program, cluster = capture(module, inputs), even_cluster(4, flops_per_s=1e10, bytes_per_s=1e10)
    shared, separate = (
        simulate(communicate_early(plan), program, cluster)
        for plan in (interlaced(program, cluster, microbatches=4), megatron(program, cluster, tp=1, pp=4, microbatches=4))
    )
    assert shared.total_s < 0.7 * separate.total_s, (shared.total_s, separate.total_s)
    assert max(shared.peak_bytes) < 0.6 * max(separate.peak_bytes), (shared.peak_bytes, separate.peak_bytes)


def test_published_pipelines_say_for_which_models_they_are() -> None:
    with pytest.raises(PlanError, match="looks nothing up, so that there is no embedding to share"):
        interlaced(_recycled().program, even_cluster(2))
    with pytest.raises(PlanError, match="goes through its layers once: a pipeline of megatron"):
        three_forward_one_backward(_two_layers().program, even_cluster(2))
    with pytest.raises(PlanError, match="has 4 layers, too few for 5 stages"):
        three_forward_one_backward(_recycled().program, even_cluster(5))


@pytest.mark.parametrize(("num_ranks", "microbatches"), [(1, 2), (2, 1), (2, 4), (4, 4)])
def test_three_forward_passes_for_one_backward_compute_what_one_device_computes(num_ranks: int, microbatches: int) -> None:
    found = _recycled()
    plan = three_forward_one_backward(found.program, even_cluster(num_ranks), microbatches=microbatches)
    assert_equal_to_one_device(found, plan)


def test_every_layer_is_passed_three_times_and_stays_on_its_rank() -> None:
    found = _recycled()
    plan = three_forward_one_backward(found.program, even_cluster(2), microbatches=4)
    ranks = {
        name: {rank for tensor in plan.sources[name] for rank in plan.mesh_of(tensor).ranks} for name in found.program.parameters
    }
    assert ranks == {name: {int(name.split(".")[1]) // 2} for name in found.program.parameters}
    forward = [step for step in plan.steps if isinstance(step, Apply) and step.op == "aten.gelu.default"]
    assert len(forward) == 3 * 4 * 4  # passes, layers, microbatches


def test_passes_that_follow_each_other_are_quicker_than_layers_split_over_all_ranks() -> None:
    module, inputs = recycled(hidden=64, batch=512)
    program, cluster = capture(module, inputs), even_cluster(4, flops_per_s=1e9, bytes_per_s=2e7)
    plan = communicate_early(three_forward_one_backward(program, cluster, microbatches=16))
    passed, split = simulate(plan, program, cluster), simulate(megatron(program, cluster), program, cluster)
    assert passed.total_s < 0.8 * split.total_s, (passed.total_s, split.total_s)
    assert sum(passed.busy_s) > 0.8 * 4 * passed.total_s  # ranks wait little, though each has three stages


def test_a_recipe_says_what_does_not_fit() -> None:
    program = _two_layers().program
    recipe = Recipe(program)
    with pytest.raises(PlanError, match="has no value 'nothing'"):
        recipe.axis("nothing", 0)
    recipe.transform(program.nodes, recipe.axis("input_0", 0), 2, Cut.IN_TIME)
    with pytest.raises(PlanError, match="is cut in time already"):
        recipe.transform(program.nodes, recipe.axis("input_0", 0), 4, Cut.IN_TIME)
    with pytest.raises(PlanError, match=r"has 1 parts in space, and is assigned to ranks \[\]"):
        recipe.materialise("mine", even_cluster(2))
