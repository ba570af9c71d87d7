"""Other planners' choices become plans: placements of graphs that are not ours, and pipelines of devices of several kinds."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.focused.planner_peers import sailor_files
from benchmarks.focused.planner_peers.asking import NoAnswerError, autoparallel, sailor
from benchmarks.focused.planner_peers.cases import Case, even, uneven
from benchmarks.focused.planner_peers.placements import PeerPlacements, plan_of_placements, read_placements, translated
from benchmarks.focused.planner_peers.stages import PeerPipeline, PeerStage, plan_of_pipeline, read_pipelines
from benchmarks.papers.peers import peers_section
from dyorc.errors import PlanError
from dyorc.planner.cluster import even_cluster, uneven_cluster
from dyorc.planner.models import gpt
from dyorc.planner.plan import MeshAxis
from dyorc.planner.planners import PLANNERS
from dyorc.planner.planners.baselines.follow import AxisPlan, choices_of, follow
from dyorc.planner.planners.baselines.megatron import columns_and_rows
from dyorc.planner.program import REPLICATE, Placement, Shard
from dyorc.planner.program.costs import costs_of
from dyorc.planner.program.graph import Phase
from dyorc.planner.simulate import simulate
from tests.unit.planner.examples import Example, example_of
from tests.unit.planner.planned import assert_equal_to_one_device

_BATCH, _SEQUENCE = 12, 16  # 192 tokens: no other dimension has this extent


@cache
def _gpt() -> Example:
    return example_of(*gpt(layers=1, batch=_BATCH, sequence=_SEQUENCE))


def _short(placement: Placement) -> str:
    return f"S({placement.dim})" if isinstance(placement, Shard) else "R" if placement == REPLICATE else "P(sum)"


def _tensor(name: str, placement: Placement) -> dict[str, Any]:
    """Writes tokens as samples and positions, as another tracer does."""
    shape = list(_gpt().program.values[name].shape)
    if shape and shape[0] == _BATCH * _SEQUENCE:
        shape = [_BATCH, _SEQUENCE, *shape[1:]]
        placement = Shard(placement.dim + 1) if isinstance(placement, Shard) and placement.dim > 0 else placement
    return {"shape": shape, "placement": _short(placement)}


def _answer(chosen: AxisPlan) -> dict[str, Any]:
    """What another planner would write that has chosen the same for a graph of its own: products are einsums of samples, some
    operations are missing, and there are others in between.
    """
    program, nodes = _gpt().program, list[dict[str, Any]]()
    for node in program.nodes:
        strategy, is_product = chosen.strategies[node.name], node.op in ("aten.mm.default", "aten.bmm.default")
        output = next(name for name in node.outputs if name)
        tensors = [_tensor(name, placement) for name, placement in zip(node.inputs, strategy.inputs, strict=True)]
        found = {"is_backward": node.phase is Phase.BACKWARD, "shape": _tensor(output, REPLICATE)["shape"], "inputs": tensors}
        nodes += [{"op": "aten.alias.default"} | found] if is_product else []
        if "gelu" not in node.op:
            nodes.append({"op": "aten.einsum.default" if is_product else node.op} | found)
    sources = [{"name": name} | _tensor(name, placement) for name, placement in chosen.sources.items()]
    return {"mesh": [chosen.axis.size], "sources": sources, "nodes": nodes}


def _tensor_parallel(num_ranks: int) -> AxisPlan:
    choices = choices_of(_gpt().program)
    shards = columns_and_rows(choices)
    return follow(choices, MeshAxis(name="tensor", size=num_ranks), shards, pinned=shards.keys())


def test_a_placement_is_found_in_merged_and_in_transposed_dimensions() -> None:
    assert translated(Shard(0), (16, 512, 4096), (8192, 4096)) == Shard(0)
    assert translated(Shard(2), (16, 512, 4096), (8192, 4096)) == Shard(1)
    assert translated(Shard(0), (16, 512, 4096), (4096, 8192)) == Shard(1)
    assert translated(Shard(2), (16, 512, 4096), (4096, 8192)) == Shard(0)
    assert translated(Shard(0), (8192, 3072), (16, 512, 16, 3, 64)) == Shard(0)
    assert translated(Shard(1), (8192, 3072), (16, 512, 16, 3, 64)) == Shard(2)
    assert translated(Shard(1), (1, 1024), (1024,)) == Shard(0)


def test_what_is_not_the_outer_part_of_a_dimension_has_no_placement() -> None:
    assert translated(Shard(1), (16, 512, 4096), (8192, 4096)) is None
    assert translated(Shard(1), (16, 512, 4096), (4096, 8192)) is None


def test_choices_for_another_graph_become_the_same_choices_here() -> None:
    chosen, cluster, program = _tensor_parallel(4), even_cluster(4), _gpt().program

    imported = plan_of_placements(program, cluster, read_placements(_answer(chosen)), "peer")

    assert imported.num_products_alike == imported.num_products > 15
    assert imported.not_expressed == ()
    by_hand = PLANNERS["megatron"](program, cluster)
    assert [step.outputs for step in imported.plan.steps] == [step.outputs for step in by_hand.steps]
    assert_equal_to_one_device(_gpt(), imported.plan)


def test_products_follow_the_other_planner_and_not_their_inputs() -> None:
    """Parameters lie whole, and products of forward passes read them in shards all the same."""
    chosen, program = _tensor_parallel(2), _gpt().program
    answer = _answer(chosen)
    for source in answer["sources"]:
        source["placement"] = "R"

    imported = plan_of_placements(program, even_cluster(2), read_placements(answer), "peer")

    assert imported.num_products_alike == imported.num_products
    assert all(
        placed.layout == (REPLICATE,) for name, placed in imported.plan.tensors.items() if name in _source_ids(imported.plan)
    )
    assert_equal_to_one_device(_gpt(), imported.plan)


def _source_ids(plan: Any) -> set[str]:
    return {tensor for tensors in plan.sources.values() for tensor in tensors}


def test_placements_for_another_number_of_ranks_are_refused() -> None:
    with pytest.raises(PlanError, match=r"peer planned for 8 ranks, and cluster .* has 4"):
        plan_of_placements(_gpt().program, even_cluster(4), PeerPlacements((8,), {}, ()), "peer")


def _pipeline(*stages: PeerStage, samples: int) -> PeerPipeline:
    return PeerPipeline(stages, samples, 1.0)


def test_a_pipeline_of_stages_with_degrees_of_their_own_becomes_a_plan() -> None:
    program, cluster = _gpt().program, uneven_cluster([2.0, 1.0, 2.0, 2.0])  # rank 3 is left out
    kinds, layers = sailor_files.kinds_of(cluster), sailor_files.layer_of_parameters(program)
    stages = PeerStage((0,), ((sailor_files.SLOW, 1),)), PeerStage((1, 2), ((sailor_files.FAST, 2),))

    plan = plan_of_pipeline(program, cluster, _pipeline(*stages, samples=6), layers, kinds, "sailor")

    assert [mesh.ranks for mesh in plan.meshes.values()] == [(1,), (0, 2)]
    assert [tuple(axis.size for axis in mesh.axes) for mesh in plan.meshes.values()] == [(2, 1), (2, 2)]
    assert_equal_to_one_device(_gpt(), plan)


def test_a_pipeline_of_one_stage_with_replicas_is_data_parallel() -> None:
    program, cluster = _gpt().program, even_cluster(2)
    replicas = PeerStage((0, 1, 2), ((sailor_files.FAST, 1),) * 2)
    layers, kinds = sailor_files.layer_of_parameters(program), sailor_files.kinds_of(cluster)

    plan = plan_of_pipeline(program, cluster, _pipeline(replicas, samples=6), layers, kinds, "sailor")

    by_hand = PLANNERS["dp_even"](program, cluster)
    assert simulate(plan, program, cluster).total_s == pytest.approx(simulate(by_hand, program, cluster).total_s)


def test_replicas_with_different_degrees_are_refused() -> None:
    program, cluster = _gpt().program, even_cluster(3)
    layers = tuple(range(3))
    pipeline = _pipeline(PeerStage(layers, ((sailor_files.FAST, 1), (sailor_files.FAST, 2))), samples=6)

    with pytest.raises(PlanError, match="replicas of one stage are tensor-parallel over 1 and 2 devices"):
        plan_of_pipeline(
            program, cluster, pipeline, sailor_files.layer_of_parameters(program), sailor_files.kinds_of(cluster), "sailor"
        )


def test_sailors_answer_is_read() -> None:
    replicas = [[{"kind": "A100-40", "tensor_parallel": 2}], [{"kind": "V100-16", "tensor_parallel": 1}]]
    answer = {"plans": [{"layers": [[0, 1], [2, 3]], "samples": 2, "step_s": 0.5, "replicas": replicas}]}

    (found,) = read_pipelines(answer)

    assert str(found) == "layers 0-1: 2 A100-40; layers 2-3: 1 V100-16; 2 samples in a microbatch"
    assert found.step_s == 0.5


def test_sailors_profile_has_the_costs_of_the_simulator(tmp_path: Path) -> None:
    program, cluster = _gpt().program, uneven_cluster([2.0, 1.0])

    question = sailor_files.write(program, cluster, tmp_path, Path("library.so"))

    profiles = [json.loads((tmp_path / kind / "profile.json").read_text()) for kind in question["devices"]]
    costs = costs_of(program)
    for rank, profile in enumerate(profiles):
        seconds = sum(sum(times) for times in profile[str(_BATCH)]["1"].values())
        assert seconds == pytest.approx(sum(cluster.compute_s(costs[node.name], rank) for node in program.nodes))
    assert sum(sum(times) for times in profiles[0]["6"]["1"].values()) < sum(
        sum(times) for times in profiles[0]["12"]["1"].values()
    )
    assert question["devices"] == {sailor_files.FAST: 1, sailor_files.SLOW: 1}


def test_a_planner_that_fails_says_why() -> None:
    case = Case(model="gpt-2", machines=even(2))

    with pytest.raises(NoAnswerError, match=r"nowhere\.so"):
        sailor(Path("nowhere.so"))(case, _gpt().program, even_cluster(2))


def test_devices_of_several_kinds_are_not_asked_of_who_knows_one() -> None:
    with pytest.raises(NoAnswerError, match="one kind of device"):
        autoparallel(Path(), is_sharded=False)(Case(model="gpt-2", machines=uneven(4)), _gpt().program, even_cluster(4))


def test_the_page_shows_each_planners_step_and_what_is_missing(tmp_path: Path) -> None:
    ours = {"step_s": 0.002, "search_cpu_s": 1.25, "is_proved": True}
    theirs = ours | {"step_s": 0.003, "products": 4, "products_alike": 3, "nodes": 10, "nodes_alike": 5}
    planners = {"hap": ours, "autoparallel": theirs, "sailor": {"no_plan": "it plans transformers"}}
    path = tmp_path / "peers.json"
    path.write_text(json.dumps({"torch": "2", "commits": {}, "cases": [{"case": "mlp on 2", "planners": planners}]}))

    page = peers_section(path)

    assert "| |hap|autoparallel|sailor|" in page
    assert "| mlp on 2 |**2.00**<br>1.2 s|3.00<br>1.2 s|-|" in page
    assert "75% read their inputs as it chose, of all nodes that compute 50%" in page
    assert "All plans are proved." in page
    assert peers_section(tmp_path / "nothing.json") == ""
