"""Limits of what machines send to each other, as the simulator and the plan's file have them."""

from dataclasses import replace

import pytest

from dyorc.errors import PlanError
from dyorc.planner.cluster import Interface, cluster_from_toml, cluster_to_toml, even_cluster
from dyorc.planner.plan import Limit, MeshAxis, Network, Plan, PlanBuilder, Provenance
from dyorc.planner.plan.plan_file import plan_from_json, plan_to_json
from dyorc.planner.program import REPLICATE, Node, Strategy, TensorProgram, Value, ValueKind, ValueRef
from dyorc.planner.simulate import simulate
from dyorc.planner.simulate.flows import speeds_of
from dyorc.planner.simulate.machine_ports import NetworkFlow

_CLUSTER = even_cluster(3, flops_per_s=1e30, bytes_per_s=1000, latency_s=0.5)
_EVEN = {"machine-1": 500.0, "machine-2": 500.0}


def _network(rates: dict[str, float], *, is_strict: bool) -> Network:
    limits = [Limit(source="machine-0", target=target, interface="eth0", bytes_per_s=rate) for target, rate in rates.items()]
    return Network(limits=tuple(limits), is_strict=is_strict)


def _fan_out() -> tuple[Plan, TensorProgram]:
    """Rank 0 negates `a` (4,000 bytes) for rank 1, and `b` (1,000 bytes) for rank 2, which read them."""
    values = {
        name: Value(name=name, shape=(size,), dtype="float32", kind=kind)
        for name, size, kind in [
            ("a", 1000, ValueKind.INPUT),
            ("b", 250, ValueKind.INPUT),
            ("na", 1000, ValueKind.ACTIVATION),
            ("nb", 250, ValueKind.ACTIVATION),
            ("ra", 1000, ValueKind.ACTIVATION),
            ("rb", 250, ValueKind.ACTIVATION),
        ]
    }
    nodes = tuple(
        Node(name=made, op="aten.neg.default", arguments=(ValueRef(read),), outputs=(made,))
        for made, read in [("na", "a"), ("nb", "b"), ("ra", "na"), ("rb", "nb")]
    )
    program = TensorProgram(
        name="fan", values=values, nodes=nodes, inputs=("a", "b"), loss="ra", gradients={}, updates={"b": "rb"}
    )
    builder = PlanBuilder(program)
    for rank in range(3):
        builder.mesh(f"m{rank}", [MeshAxis(name="one", size=1)], [rank])
    whole = Strategy((REPLICATE,), (REPLICATE,))
    builder.source("a", "m0", [REPLICATE])
    builder.source("b", "m0", [REPLICATE])
    for node, mesh in zip(nodes, ("m0", "m0", "m1", "m2"), strict=True):
        builder.apply(node, mesh, [whole])
    builder.result("ra", "m1", [REPLICATE])
    builder.result("rb", "m2", [REPLICATE])
    return builder.build(Provenance(planner="test")), program


@pytest.mark.parametrize(
    ("network", "expected_s"),
    [
        (None, 0.5 + 4 + 0.5 + 1),  # one after the other through the only way out
        (_network(_EVEN, is_strict=True), 0.5 + 8),  # beside each other, and nobody gets the half that is left
        (
            _network({"machine-1": 800.0, "machine-2": 200.0}, is_strict=True),
            0.5 + 5,
        ),  # all end together: 5,000 bytes of 1,000 a second
        (_network(_EVEN, is_strict=False), 0.5 + 2 + 3),  # until `b` has passed, half each; then all
        (_network({"machine-1": 800.0, "machine-2": 200.0}, is_strict=False), 0.5 + 5),
        (_network({"machine-1": 100.0}, is_strict=True), 0.5 + 40),  # machine 2 is not limited
    ],
)
def test_how_long_a_step_takes_under_limits(network: Network | None, expected_s: float) -> None:
    plan, program = _fan_out()
    found = simulate(replace(plan, network=network), program, _CLUSTER)
    assert found.total_s == pytest.approx(expected_s)


def test_what_two_senders_lend_each_other_at_one_receiver() -> None:
    flows = {0: NetworkFlow(200, 1000, 0, (0, 3)), 1: NetworkFlow(300, 1000, 0, (2, 3)), 2: NetworkFlow(100, 150, 0, (0, 5))}
    found = speeds_of(flows, [1000.0] * 6)
    assert {index: flows[index].bytes_per_s * speed for index, speed in found.items()} == pytest.approx({0: 400, 1: 600, 2: 150})


def test_limits_are_part_of_the_plans_file() -> None:
    plan = replace(_fan_out()[0], network=_network(_EVEN, is_strict=False))
    assert plan_from_json(plan_to_json(plan)) == plan


def test_limits_of_another_cluster_are_refused() -> None:
    plan, program = _fan_out()
    renamed = tuple(replace(device, machine=device.machine.replace("0", "7")) for device in _CLUSTER.devices)
    limited = replace(plan, network=_network(_EVEN, is_strict=True))
    with pytest.raises(PlanError, match=r"limits machine machine-0, and cluster .* has machine-7"):
        simulate(limited, program, replace(_CLUSTER, devices=renamed))


def test_a_limit_is_given_once() -> None:
    limits = _network(_EVEN, is_strict=True).limits
    with pytest.raises(PlanError, match="several limits from machine-0 to machine-1 through eth0"):
        Network(limits=limits * 2)


def test_interfaces_are_part_of_a_clusters_file() -> None:
    interfaces = (
        Interface(machine="machine-0", name="eth0", bytes_per_s=1e3, address="10.0.0.1"),
        Interface(machine="machine-0", name="eth1", bytes_per_s=2e3),
    )
    cluster = replace(_CLUSTER, interfaces=interfaces)
    assert cluster_from_toml(cluster_to_toml(cluster)).interfaces == interfaces
    assert cluster.capacity_of("machine-0") == 3e3
    assert cluster.capacity_of("machine-1") == 1e3
    wrong = cluster_to_toml(cluster).replace("10.0.0.1", "10.0.0")
    with pytest.raises(PlanError, match=r"cluster, line \d+: machines.interfaces.address .* an IP address, and not '10.0.0'"):
        cluster_from_toml(wrong)
