"""Real ranks compute what one device computes, in every layout and by every algorithm, and checkpoints pass between plans."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product as combinations
from pathlib import Path

import pytest
import torch

from benchmarks.focused.planners.model import LEARNING_RATE, losses_on_one_device, task
from dyorc.planner.cluster import uneven_cluster
from dyorc.planner.plan import Algorithm, Plan
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import PARTIAL, REPLICATE, Node, Shard, TensorProgram, ValueKind, ValueRef, evaluate
from dyorc.planner.program.graph import Phase
from dyorc.planner.runtime import Checkpoint, LinkShape, RankForkServer, RankOptions, Ranks, Training, train_on
from tests.integration.planner.plans import Place, changed, data_parallel, moved, product, product_value
from tests.unit.planner.examples import Example, example

_KINDS = [(PARTIAL, REPLICATE), (PARTIAL, Shard(0)), (PARTIAL, Shard(1)), (Shard(0), REPLICATE), (Shard(1), REPLICATE)]
_KINDS += [
    (Shard(0), Shard(1)),
    (Shard(1), Shard(0)),
    (Shard(0), Shard(0, (2, 0, 6))),
    (REPLICATE, Shard(1)),
    (REPLICATE, PARTIAL),
]


@pytest.fixture(scope="module")
def ranks(fork_server: RankForkServer) -> Iterator[Ranks]:
    with Ranks(RankOptions(num_ranks=4), fork_server.fork) as started:
        yield started


def _check(found: Example, ranks: Ranks, plan: Plan, *, overlap: bool) -> None:
    results = ranks.run(plan, found.sources, overlap=overlap).results
    assert results.keys() == found.results.keys()
    for name, tensor in found.results.items():
        torch.testing.assert_close(results[name], tensor, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("ratios", "parts"), [((1, 1), 1), ((3, 1), 2), ((1, 0), 1), ((1, 1, 1, 1), 2), ((3, 1, 0, 4), 1)])
@pytest.mark.parametrize("name", ["gpt", "net"])
def test_loss_and_gradients_of_real_ranks_are_those_of_one_device(
    ranks: Ranks, name: str, ratios: tuple[float, ...], parts: int
) -> None:
    found = example(name)
    plan = data_parallel(found, ratios, is_sharded=parts == 1, num_parts=parts)
    _check(found, ranks, plan, overlap=False)
    _check(found, ranks, plan, overlap=True)


def _check_collectives(ranks: Ranks, ratios: Sequence[float]) -> None:
    expected = product_value()
    for (before, after), algorithm in combinations(_KINDS, Algorithm):
        if isinstance(after, Shard) and after.sizes and len(after.sizes) != len(ratios):
            continue
        plan = changed(ratios, before, after, algorithm)
        (result,) = ranks.run(plan, product().sources, overlap=algorithm is Algorithm.RING).results.values()
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-12, msg=f"{before} to {after}, {algorithm}")


@pytest.mark.parametrize("ratios", [(1, 1), (3, 1), (1, 0), (1, 0, 2), (1, 1, 1, 1)], ids=str)
def test_each_collective_by_each_algorithm_gives_the_whole(ranks: Ranks, ratios: tuple[float, ...]) -> None:
    _check_collectives(ranks, ratios)


def test_shaped_links_change_nothing_but_the_time(fork_server: RankForkServer) -> None:
    slow = LinkShape(bytes_per_s=1e6, latency_s=0.0002)
    options = RankOptions(num_ranks=3, links={(a, b): slow for a in range(3) for b in range(3) if a != b})
    with Ranks(options, fork_server.fork) as ranks:
        _check_collectives(ranks, (1, 0, 2))
        found = example("gpt")
        plan = data_parallel(found, (2, 1, 1))
        gradients_bytes = sum(found.program.values[name].num_bytes for name in found.program.gradients)
        ran = ranks.run(plan, found.sources)
        _check(found, ranks, plan, overlap=True)
    assert min(ran.seconds) > gradients_bytes * 4 / 3 / 1e6  # each passes all but a third of each gradient on, twice


_PLACES = [
    Place((0,), (1,), ((1,),), (REPLICATE,)),
    Place((2, 3), (2,), ((3, 1),), (Shard(0),)),
    Place((2, 3), (2,), ((1, 0),), (Shard(1),)),
    Place((1, 0), (2,), ((1, 1),), (PARTIAL,)),
    Place((0, 1, 2), (3,), ((1, 2, 1),), (Shard(1),)),
    Place((3, 1, 2, 0), (2, 2), ((1, 1), (3, 1)), (Shard(1), Shard(0))),
    Place((0, 1, 2, 3), (2, 2), ((1, 1), (1, 1)), (REPLICATE, Shard(0))),
]


def test_tensors_go_between_meshes_of_any_size_and_layout(ranks: Ranks) -> None:
    expected = product_value()
    for before, after in combinations(_PLACES, _PLACES):
        plan = moved(before, after)
        (result,) = ranks.run(plan, product().sources, overlap=before.ranks != (0,)).results.values()
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-12, msg=f"{before} to {after}")


def test_a_checkpoint_of_one_plan_is_loaded_by_another(ranks: Ranks, tmp_path: Path) -> None:
    found, folder = example("gpt"), tmp_path / "checkpoint"
    expected, losses = _trained_on_one_device(found, 5, learning_rate=0.1)
    few, many = data_parallel(found, (3, 1), is_sharded=True), data_parallel(found, (1, 0, 2, 1), is_sharded=True)
    inputs = {name: found.sources[name] for name in found.program.inputs}
    first = Training(steps=3, checkpoint=folder, checkpoint_every=2)
    one = train_on(ranks, few, found.program, found.sources, lambda step: inputs, first)
    with Checkpoint.open(folder) as checkpoint:
        assert checkpoint.index.step == 3
        for name, tensor in one.sources.items():
            torch.testing.assert_close(checkpoint.read(name), tensor, rtol=0, atol=0)
    assert len(list(folder.glob("*.safetensors"))) == 4  # of the last step only, one for each rank
    other = train_on(ranks, many, found.program, {}, lambda step: inputs, Training(steps=5, resume=folder, overlap=False))
    assert other.first_step == 3
    assert [*one.losses, *other.losses] == pytest.approx(losses, abs=1e-9, rel=0)
    for name, tensor in other.sources.items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-9)


def test_a_plan_with_updates_of_its_own_trains_by_them(ranks: Ranks) -> None:
    found = example("gpt")
    program = _with_updates(found.program, learning_rate=0.2)
    assert program.updates.keys() == program.gradients.keys()
    sources = dict(found.sources)
    for _ in range(3):
        results = evaluate(program, sources)
        sources |= {name: results[value] for name, value in program.updates.items()}
    plan = data_parallel(replace(found, program=program), (1, 0, 2))
    inputs = {name: found.sources[name] for name in program.inputs}
    trained = train_on(ranks, plan, program, found.sources, lambda step: inputs, Training(steps=3, learning_rate=1e9))
    for name, tensor in trained.sources.items():
        torch.testing.assert_close(tensor, sources[name], rtol=0, atol=1e-9)


def _with_updates(program: TensorProgram, learning_rate: float) -> TensorProgram:
    """Adds gradient descent to the program itself."""
    values, nodes, updates = dict(program.values), list(program.nodes), dict[str, str]()
    for parameter, gradient in program.gradients.items():
        for name, op, arguments in (
            (f"{parameter}.change", "aten.mul.Tensor", (ValueRef(gradient), learning_rate)),
            (f"{parameter}.next", "aten.sub.Tensor", (ValueRef(parameter), ValueRef(f"{parameter}.change"))),
        ):
            values[name] = replace(values[parameter], name=name, kind=ValueKind.ACTIVATION)
            nodes.append(Node(name=name, op=op, arguments=arguments, outputs=(name,), phase=Phase.UPDATE))
        updates[parameter] = f"{parameter}.next"
    return replace(program, values=values, nodes=tuple(nodes), updates=updates)


def test_the_plans_of_the_benchmark_train_as_one_device_does(ranks: Ranks) -> None:
    found = task("quick")
    plan = PLANNERS["dp_proportional"](found.program, uneven_cluster([3, 1, 1, 1]))
    trained = train_on(ranks, plan, found.program, found.sources, found.batch, Training(steps=4, learning_rate=LEARNING_RATE))
    assert trained.losses == pytest.approx(losses_on_one_device(found, 4), abs=1e-4)


def _trained_on_one_device(found: Example, steps: int, learning_rate: float) -> tuple[dict[str, torch.Tensor], list[float]]:
    sources, losses = dict(found.sources), list[float]()
    for _ in range(steps):
        results = evaluate(found.program, sources)
        losses.append(float(results[found.program.loss]))
        for name, gradient in found.program.gradients.items():
            sources[name] = sources[name] - learning_rate * results[gradient]
    return {n: t for n, t in sources.items() if found.program.values[n].kind is not ValueKind.INPUT}, losses
