"""Simulations of small plans, each of which can be counted by hand."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster, Contention, Device, Link, even_cluster, uneven_cluster
from dyorc.planner.plan import Collective, CollectiveKind, MeshAxis, Plan, PlanBuilder, Provenance, communicate_early
from dyorc.planner.plan.interpret import interpret
from dyorc.planner.plan.on_torch import TorchAlgebra
from dyorc.planner.program import (
    PARTIAL,
    REPLICATE,
    Node,
    Placement,
    Shard,
    Strategy,
    TensorProgram,
    Value,
    ValueKind,
    ValueRef,
    axes_of,
    strategies_of,
)
from dyorc.planner.simulate import Simulation, check_memory, simulate, to_chrome_trace
from tests.unit.planner.examples import example

_BYTES = 128  # of each tensor [8, 4] of float32
_INNER = Strategy((Shard(1), Shard(0)), (PARTIAL,))
_ROWS = Strategy((Shard(0), REPLICATE), (Shard(0),))
_WHOLE = Strategy((REPLICATE, REPLICATE), (REPLICATE,))


def _chain(num_products: int) -> TensorProgram:
    """`y1 = x @ w1`, `y2 = y1 @ w2`, ...: x is [8, 4], each w is [4, 4]; 256 flops each."""
    values = {"x": Value(name="x", shape=(8, 4), dtype="float32", kind=ValueKind.INPUT)}
    nodes: list[Node] = []
    before = "x"
    for index in range(1, num_products + 1):
        values[f"w{index}"] = Value(name=f"w{index}", shape=(4, 4), dtype="float32", kind=ValueKind.PARAMETER)
        values[f"y{index}"] = Value(name=f"y{index}", shape=(8, 4), dtype="float32", kind=ValueKind.ACTIVATION)
        arguments = (ValueRef(before), ValueRef(f"w{index}"))
        nodes.append(Node(name=f"mm{index}", op="aten.mm.default", arguments=arguments, outputs=(f"y{index}",)))
        before = f"y{index}"
    return TensorProgram(name="chain", values=values, nodes=tuple(nodes), inputs=("x",), loss=before, gradients={})


def _siblings() -> TensorProgram:
    """Two products that read the same, the second of which is the result: `y1 = x @ w1`, `y2 = x @ w2`."""
    program = _chain(2)
    second = replace(program.nodes[1], arguments=(ValueRef("x"), ValueRef("w2")))
    return replace(program, nodes=(program.nodes[0], second), gradients={"w1": "y1"})


def _cluster(num_ranks: int = 2) -> Cluster:
    """A product takes 2 s on one device, 128 bytes take 1 s; 0.25 s of latency."""
    return even_cluster(num_ranks, flops_per_s=128, bytes_per_s=128, latency_s=0.25)


def _builder(program: TensorProgram, ratios: Sequence[float], *, num_parts: int = 1) -> PlanBuilder:
    builder = PlanBuilder(program)
    time = [MeshAxis(name="part", size=num_parts, is_time=True)] if num_parts > 1 else []
    builder.mesh("ranks", [*time, MeshAxis(name="rank", size=len(ratios))], range(len(ratios)), {"rank": ratios})
    return builder


def _built(builder: PlanBuilder) -> Plan:
    return builder.build(Provenance(planner="test"))


def _one_product(strategy: Strategy, result: Placement, ratios: Sequence[float] = (1, 1)) -> tuple[Plan, TensorProgram]:
    program = _chain(1)
    builder = _builder(program, ratios)
    for name, placement in zip(("x", "w1"), strategy.inputs, strict=True):
        builder.source(name, "ranks", [placement])
    builder.apply(program.nodes[0], "ranks", [strategy])
    builder.result("y1", "ranks", [result])
    return _built(builder), program


def test_two_ranks_compute_halves_of_a_product_and_add_them_up() -> None:
    plan, program = _one_product(_INNER, REPLICATE)
    found = simulate(plan, program, _cluster())
    # half a product, then an all-reduce of 128 bytes: 2 rounds of latency, and 2 * 1/2 of the bytes
    assert found.total_s == 1.0 + (0.5 + 1.0)
    assert found.busy_s == (1.0, 1.0)
    assert found.communication_s == (1.5, 1.5)
    assert [(e.name, e.ranks, e.start_s, e.end_s) for e in found.events] == [
        ("mm1", (0,), 0.0, 1.0),
        ("mm1", (1,), 0.0, 1.0),
        ("all_reduce y1", (0, 1), 1.0, 2.5),
    ]
    # half of x and of w1, the partial sum, and the result
    assert found.peak_bytes == (64 + 32 + 2 * _BYTES,) * 2


def test_uneven_shares_take_as_long_as_the_slowest_and_fit_uneven_devices() -> None:
    plan, program = _one_product(_ROWS, Shard(0), (3, 1))
    even, uneven = _cluster(), uneven_cluster([3, 1], flops_per_s=64)
    assert simulate(plan, program, even).busy_s == (1.5, 0.5)
    assert simulate(plan, program, even).total_s == 1.5
    assert simulate(plan, program, uneven).busy_s == (1.0, 1.0)
    # 6 and 2 rows of x and of y1, and all of w1
    assert simulate(plan, program, even).peak_bytes == (96 + 64 + 96, 32 + 64 + 32)


def test_a_rank_without_a_share_computes_nothing() -> None:
    plan, program = _one_product(_ROWS, Shard(0), (1, 0))
    assert simulate(plan, program, _cluster()).busy_s == (2.0, 0.0)


def _two_independent_products() -> tuple[Plan, TensorProgram]:
    program = _siblings()
    builder = _builder(program, (1, 1))
    for name, placement in (("x", Shard(1)), ("w1", Shard(0)), ("w2", Shard(0))):
        builder.source(name, "ranks", [placement])
    for node in program.nodes:
        builder.apply(node, "ranks", [_INNER])
        builder.result(node.outputs[0], "ranks", [REPLICATE])
    return _built(builder), program


def test_communication_hides_behind_computation_if_it_may_overlap() -> None:
    plan, program = _two_independent_products()
    overlapped, alone = (simulate(plan, program, _cluster(), overlap=overlap) for overlap in (True, False))
    assert alone.total_s == 2 * (1.0 + 1.5)
    # the second product is computed from 1 s to 2 s, beside the first all-reduce; its own waits for the channel
    assert overlapped.total_s == 1.0 + 1.5 + 1.5
    assert overlapped.overlap_s == (1.0, 1.0)
    assert alone.overlap_s == (0.0, 0.0)
    assert overlapped.busy_s == alone.busy_s


def test_computing_and_communicating_at_once_may_slow_each_other() -> None:
    plan, program = _two_independent_products()
    cluster = replace(_cluster(), contention=Contention(computing=2.0, communicating=1.5))
    found = simulate(plan, program, cluster)
    # beside the first all-reduce, the second product takes 2 s; of the all-reduce's 1.5 s, these do 2 / 1.5, the rest comes after
    second = next(event for event in found.events if event.name == "mm2")
    assert (second.start_s, second.end_s) == (1.0, 3.0)
    assert found.busy_s == (3.0, 3.0)
    assert found.total_s == pytest.approx(3.0 + (1.5 - 2.0 / 1.5) + 1.5)
    assert simulate(plan, program, cluster, overlap=False).total_s == 2 * (1.0 + 1.5)


def test_a_communication_beside_computation_may_have_to_wait() -> None:
    plan, program = _two_independent_products()
    contention = Contention(computing=1.0, communicating=1.0, waiting_s=0.25)
    # beside the second product, which takes 1 s, the first all-reduce takes 1.5 s + 0.25 s: 1.5 / 1.75 of it are done then
    first_s = 1.0 + 1.0 + 1.5 * (1 - 1.0 / 1.75)
    found = simulate(plan, program, replace(_cluster(), contention=contention))
    assert found.total_s == pytest.approx(first_s + 1.5)


def test_channels_keep_the_plans_order_which_communicating_early_changes() -> None:
    program = _siblings()
    builder = _builder(program, (1, 1))
    for name, placement in (("x", Shard(1)), ("w1", Shard(0)), ("w2", Shard(0))):
        builder.source(name, "ranks", [placement])
    for node in program.nodes:
        builder.apply(node, "ranks", [_INNER])
    for value in ("y2", "y1"):
        builder.result(value, "ranks", [REPLICATE])
    plan = _built(builder)
    assert simulate(plan, program, _cluster()).total_s == 2.0 + 1.5 + 1.5
    early = communicate_early(plan)
    assert early.steps != plan.steps
    assert simulate(early, program, _cluster()).total_s == 1.0 + 1.5 + 1.5


def test_a_piece_is_there_from_when_it_is_computed_until_it_is_last_read() -> None:
    program = _chain(3)
    builder = _builder(program, (1,))
    for name in program.sources:
        builder.source(name, "ranks", [REPLICATE])
    for node in program.nodes:
        builder.apply(node, "ranks", [_WHOLE])
    builder.result("y3", "ranks", [REPLICATE])
    found = simulate(_built(builder), program, _cluster(1))
    sources = _BYTES + 3 * 64
    assert found.memory == (
        (
            (0.0, sources + _BYTES),  # y1
            (2.0, sources + 2 * _BYTES),  # y1, y2
            (4.0, sources + 2 * _BYTES),  # y2, y3
            (6.0, sources + _BYTES),  # y3 is the result
        ),
    )
    assert found.peak_bytes == (sources + 2 * _BYTES,)


def test_a_view_takes_no_memory_and_keeps_what_it_looks_at() -> None:
    program = _chain(2)
    view = Value(name="v", shape=(4, 8), dtype="float32", kind=ValueKind.ACTIVATION)
    turn = Node(name="turn", op="aten.permute.default", arguments=(ValueRef("y1"), (1, 0)), outputs=("v",))
    product = replace(program.nodes[1], arguments=(ValueRef("w2"), ValueRef("v")))
    values = {**program.values, "v": view, "y2": replace(program.values["y2"], shape=(4, 8))}
    program = replace(program, values=values, nodes=(program.nodes[0], turn, product))
    builder = _builder(program, (1,))
    for name in program.sources:
        builder.source(name, "ranks", [REPLICATE])
    for node in program.nodes:
        builder.apply(node, "ranks", [Strategy((REPLICATE,) * len(node.inputs), (REPLICATE,))])
    builder.result("y2", "ranks", [REPLICATE])
    plan, cluster = _built(builder), _cluster(1)
    found = simulate(plan, program, cluster)
    assert len(found.tasks) == 2
    assert found.peak_bytes == (_BYTES + 2 * 64 + 2 * _BYTES,)
    assert found.memory[0][-1] == (4.0, _BYTES + 2 * 64 + _BYTES)
    slow = replace(cluster, devices=(replace(cluster.devices[0], view_s=0.5),))
    assert simulate(plan, program, slow).total_s == 4.5
    assert slow.digest != cluster.digest


def test_one_part_communicates_while_the_next_computes() -> None:
    """Two microbatches of a product whose inner dimension is cut; each half's sum is 64 bytes."""
    program = _chain(1)
    builder = _builder(program, (1, 1), num_parts=2)
    builder.source("x", "ranks", [Shard(0), Shard(1)])
    builder.source("w1", "ranks", [REPLICATE, Shard(0)])
    for part in range(2):
        builder.apply(program.nodes[0], "ranks", [_ROWS, _INNER], part)
        builder.want("y1", "ranks", [Shard(0), REPLICATE], part)
    builder.result("y1", "ranks", [Shard(0), REPLICATE])
    plan = _built(builder)
    found = simulate(plan, program, _cluster())
    each = 2 * 0.25 + 0.5
    assert [(e.name, e.start_s) for e in found.events if e.is_communication] == [
        ("all_reduce y1 #0", 0.5),
        ("all_reduce y1 #1", 0.5 + each),
    ]
    assert found.total_s == 0.5 + 2 * each
    assert simulate(plan, program, _cluster(), overlap=False).total_s == 2 * (0.5 + each)


def test_a_collective_without_a_part_is_for_all_parts() -> None:
    program = _chain(1)
    builder = _builder(program, (1, 1), num_parts=2)
    builder.source("x", "ranks", [Shard(0), REPLICATE])
    builder.source("w1", "ranks", [REPLICATE, Shard(0)])
    source = builder.source("x", "ranks", [Shard(0), Shard(1)])
    builder.source("w1", "ranks", [REPLICATE, REPLICATE])
    gathered = builder.collective(source, "rank", REPLICATE, None)
    plan = builder.draft()
    step = Collective(kind=CollectiveKind.ALL_GATHER, source=source, target=gathered, axis="rank", part=None)
    found = simulate(replace(plan, steps=(step,)), program, _cluster())
    # each part's halves of 32 bytes, one after the other
    assert [(e.start_s, e.end_s) for e in found.events] == [(0.0, 0.5), (0.5, 1.0)]


def test_parts_are_put_together_without_communication() -> None:
    program = _chain(1)
    builder = _builder(program, (1,), num_parts=2)
    builder.source("x", "ranks", [Shard(0), REPLICATE])
    builder.source("w1", "ranks", [REPLICATE, REPLICATE])
    for part in range(2):
        builder.apply(program.nodes[0], "ranks", [_ROWS, _WHOLE], part)
    builder.result("y1", "ranks", [REPLICATE, REPLICATE])
    slow = _cluster(1)
    slow = replace(slow, devices=(replace(slow.devices[0], memory_bytes_per_s=_BYTES),))
    found = simulate(_built(builder), program, slow)
    # halves of x and y1 and all of w1 for each product: 128 + 64 bytes; then 256 bytes are read and written
    assert found.communication_s == (0.0,)
    assert found.total_s == 2 * max(1.0, 0.5 * (2 * _BYTES + 64) / _BYTES) + 2.0


def _pipeline(num_ranks: int = 4) -> tuple[Plan, TensorProgram]:
    """Two products, each on a mesh of its own: rows on the first, whole on the second."""
    program = _chain(2)
    builder = PlanBuilder(program)
    half = num_ranks // 2
    builder.mesh("first", [MeshAxis(name="rank", size=half)], range(half))
    builder.mesh("second", [MeshAxis(name="rank", size=half)], range(half, num_ranks))
    builder.source("x", "first", [Shard(0)])
    builder.source("w1", "first", [REPLICATE])
    builder.source("w2", "second", [REPLICATE])
    builder.apply(program.nodes[0], "first", [_ROWS])
    builder.apply(program.nodes[1], "second", [_ROWS])
    builder.result("y2", "second", [Shard(0)])
    return _built(builder), program


def test_ranks_of_one_mesh_send_what_those_of_the_next_lack() -> None:
    plan, program = _pipeline()
    found = simulate(plan, program, _cluster(4))
    sent = [(e.ranks, e.start_s, e.end_s) for e in found.events if e.is_communication]
    assert sent == [((0, 2), 1.0, 1.75), ((1, 3), 1.0, 1.75)]  # 64 bytes each, on links of their own
    assert found.total_s == 1.75 + 1.0
    assert found.busy_s == (1.0,) * 4


def test_a_sum_over_time_is_sent_part_by_part() -> None:
    """Two microbatches of a product whose inner dimension is cut along time: each part has a term of the whole shape."""
    program = _chain(1)
    builder = PlanBuilder(program)
    for name, rank in (("one", 0), ("other", 1)):
        builder.mesh(name, [MeshAxis(name="part", size=2, is_time=True), MeshAxis(name="rank", size=1)], [rank])
    builder.source("x", "one", [Shard(1), REPLICATE])
    builder.source("w1", "one", [Shard(0), REPLICATE])
    for part in range(2):
        builder.apply(program.nodes[0], "one", [_INNER, _WHOLE], part)
        builder.want("y1", "other", [PARTIAL, REPLICATE], part)
    builder.result("y1", "other", [REPLICATE, REPLICATE])
    found = simulate(_built(builder), program, _cluster())
    assert [(e.ranks, e.start_s, e.end_s) for e in found.events if e.is_communication] == [((0, 1), 1, 2.25), ((0, 1), 2.25, 3.5)]


def _on_machines(*machines: str) -> Cluster:
    """The cluster with its devices on these machines."""
    whole, names = _cluster(len(machines)), list(dict.fromkeys(machines))
    devices = tuple(replace(device, machine=machine) for device, machine in zip(whole.devices, machines, strict=True))
    pairs = [(a, b) for index, b in enumerate(names) for a in names[: index + 1]]
    links = tuple(Link(source=a, target=b, bytes_per_s=128, latency_s=0.25) for a, b in pairs)
    return Cluster(name="machines", devices=devices, links=links)


def test_what_leaves_one_machine_goes_one_after_another() -> None:
    plan, program = _pipeline()
    found = simulate(plan, program, _on_machines("left", "left", "right", "right"))
    sent = [(e.ranks, e.start_s, e.end_s) for e in found.events if e.is_communication]
    assert sent == [((0, 2), 1.0, 1.75), ((1, 3), 1.75, 2.5)]
    assert found.total_s == 2.5 + 1.0


@pytest.mark.parametrize("overlap", [True, False])
def test_groups_that_share_links_between_machines_take_turns_and_those_within_machines_do_not(overlap: bool) -> None:
    """A mesh of 2 x 2 ranks: along the outer axis, groups (0, 2) and (1, 3); along the inner one (0, 1) and (2, 3)."""
    program = _chain(1)
    cluster = _on_machines("left", "left", "right", "right")
    starts: dict[str, list[tuple[tuple[int, ...], float]]] = {}
    for axis, strategies in (("outer", [_INNER, _WHOLE]), ("inner", [_WHOLE, _INNER])):
        builder = PlanBuilder(program)
        builder.mesh("grid", [MeshAxis(name="outer", size=2), MeshAxis(name="inner", size=2)], range(4))
        for position, name in enumerate(("x", "w1")):
            builder.source(name, "grid", [strategy.inputs[position] for strategy in strategies])
        builder.apply(program.nodes[0], "grid", strategies)
        builder.result("y1", "grid", [REPLICATE, REPLICATE])
        found = simulate(_built(builder), program, cluster, overlap=overlap)
        starts[axis] = [(e.ranks, e.start_s) for e in found.events if e.is_communication]
    assert starts["outer"] == [((0, 2), 1.0), ((1, 3), 1.0 + 1.5)]
    assert starts["inner"] == [((0, 1), 1.0), ((2, 3), 1.0)]


@pytest.mark.parametrize("machines", [("a", "b", "c"), ("a", "a", "a")])
def test_a_rank_takes_what_it_has_itself(machines: tuple[str, ...]) -> None:
    program = _chain(2)
    builder = PlanBuilder(program)
    builder.mesh("one", [MeshAxis(name="rank", size=2)], [0, 1])
    builder.mesh("other", [MeshAxis(name="rank", size=2)], [1, 2])
    builder.source("x", "one", [REPLICATE])
    for name in ("w1", "w2"):
        builder.source(name, "one", [REPLICATE])
        builder.source(name, "other", [REPLICATE])
    builder.apply(program.nodes[0], "one", [_WHOLE])
    builder.apply(program.nodes[1], "other", [_WHOLE])
    builder.result("y2", "other", [REPLICATE])
    found = simulate(_built(builder), program, _on_machines(*machines))
    assert [e.ranks for e in found.events if e.is_communication] == [(0, 2)]
    assert found.total_s == 2.0 + 1.25 + 2.0


def test_a_plan_that_needs_too_much_memory_is_refused_with_rank_and_bytes() -> None:
    plan, program = _one_product(_INNER, REPLICATE)
    cluster = _cluster()
    found = simulate(plan, program, cluster)
    check_memory(found, cluster)
    small = Device(name="small", machine="machine-1", flops_per_s=1, memory_bytes=351)
    with pytest.raises(PlanError, match=r"rank 1 \(small on machine-1\) needs 352 bytes and has 351$"):
        check_memory(found, replace(cluster, devices=(cluster.devices[0], small)))


def test_a_plan_that_does_not_fit_is_refused() -> None:
    plan, program = _one_product(_INNER, REPLICATE)
    with pytest.raises(PlanError, match="the plan is for 2 ranks, and cluster 1 has 1 devices"):
        simulate(plan, program, _cluster(1))
    with pytest.raises(PlanError, match="another model"):
        simulate(plan, _chain(2), _cluster())
    with pytest.raises(PlanError, match=r"rank 0 needs y1.*, and no step has made it"):
        simulate(replace(plan, steps=plan.steps[1:]), program, _cluster())


def _data_parallel(ratios: Sequence[float], num_parts: int) -> Plan:
    program = example("gpt").program
    axes, builder = axes_of(program), _builder(program, ratios, num_parts=num_parts)
    batch = axes.outermost[program.inputs[0]][0]
    whole = [REPLICATE] * (1 + (num_parts > 1))
    for name in program.sources:
        builder.source(name, "ranks", whole)
    for node in program.nodes:
        strategies = strategies_of(program, node, axes)
        split = next((strategy for strategy in strategies if strategy.axis == batch), strategies[0])
        for part in range(num_parts):
            builder.apply(node, "ranks", [split] * len(whole), part if num_parts > 1 else None)
    for name in program.results:
        builder.result(name, "ranks", whole)
    return _built(builder)


def _trace(simulation: Simulation) -> str:
    return json.dumps(to_chrome_trace(simulation))


@pytest.mark.parametrize(("ratios", "num_parts"), [((1, 1), 1), ((3, 1), 2), ((1, 0, 2), 1)])
def test_whole_steps_of_training_are_simulated_the_same_each_time(ratios: tuple[float, ...], num_parts: int) -> None:
    found, plan = example("gpt"), _data_parallel(ratios, num_parts)
    cluster = uneven_cluster([max(ratio, 0.5) for ratio in ratios], flops_per_s=1e9, bytes_per_s=1e8)
    early = communicate_early(plan)
    results = interpret(early, found.sources, TorchAlgebra())
    for value, tensor in found.results.items():
        torch.testing.assert_close(results[value], tensor, rtol=0, atol=1e-9)
    one, again = (simulate(early, found.program, cluster) for _ in range(2))
    assert _trace(one) == _trace(again)
    alone, late = simulate(early, found.program, cluster, overlap=False), simulate(plan, found.program, cluster)
    assert one.total_s < late.total_s <= alone.total_s * (1 + 1e-9)
    for rank in range(len(ratios)):
        busy_s, communication_s = one.busy_s[rank], one.communication_s[rank]
        assert max(busy_s, communication_s) <= one.total_s * (1 + 1e-9)
        assert one.memory[rank][-1][1] == alone.memory[rank][-1][1]  # sources and results
    assert alone.total_s >= max(map(sum, zip(alone.busy_s, alone.communication_s, strict=True))) * (1 - 1e-9)


def test_a_trace_has_a_row_for_each_device_and_channel() -> None:
    plan, program = _two_independent_products()
    cluster = _cluster()
    trace = to_chrome_trace(simulate(plan, program, cluster), cluster)
    events = trace["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert names == {(1, 0): "rank 0 (1x on machine-0)", (1, 1): "rank 1 (1x on machine-1)", (2, 0): "ranks 0, 1"}
    bars = [(names[e["pid"], e["tid"]], e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert ("rank 1 (1x on machine-1)", "mm2", 1e6, 1e6) in bars
    assert ("ranks 0, 1", "all_reduce y2", 2.5e6, 1.5e6) in bars
    assert {e["name"] for e in events if e["ph"] == "C"} == {"memory of rank 0", "memory of rank 1"}
