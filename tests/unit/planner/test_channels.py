"""How each message of a plan goes: chosen by costs, kept in the file, priced, and never written over while it is needed."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from dyorc.errors import PlanError
from dyorc.planner.cluster import ChannelCost, Cluster, cluster_from_toml, cluster_to_toml, even_cluster, one_machine
from dyorc.planner.measure import transfers
from dyorc.planner.passes.channels import with_channels
from dyorc.planner.plan import Apply, ChannelKind, Edge, Plan, Transfer
from dyorc.planner.plan.document import document_of, plan_of
from dyorc.planner.plan.lifetimes import slot_uses
from dyorc.planner.plan.plan_file import digest_of, plan_from_json, plan_to_json
from dyorc.planner.plan.show import summary_of
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import Partial
from dyorc.planner.program.update import with_update
from dyorc.planner.runtime.message_lanes import lanes_of, slot_bytes_of
from dyorc.planner.simulate import simulate
from dyorc.planner.verify import Tier, verify
from tests.unit.planner.examples import example


def _edges(plan: Plan) -> list[Edge]:
    return [edge for step in plan.steps if isinstance(step, Transfer) for edge in step.edges]


@cache
def _served() -> Plan:
    """Two workers, and a server beside them."""
    return PLANNERS["parameter_server"](example("gpt").program, one_machine(3), servers=1)


def _costs(static_s: float, dynamic_s: float, grpc_s: float) -> tuple[ChannelCost, ...]:
    kinds = (ChannelKind.STATIC, ChannelKind.DYNAMIC, ChannelKind.GRPC)
    return tuple(
        ChannelCost(kind=kind, bytes_per_s=1e9, latency_s=latency_s)
        for kind, latency_s in zip(kinds, (static_s, dynamic_s, grpc_s), strict=True)
    )


def test_each_message_goes_the_cheapest_way_that_leads_there() -> None:
    here = replace(one_machine(3, latency_s=1e-3), channels=_costs(1e-4, 2e-4, 3e-4))
    assert {edge.kind for edge in _edges(with_channels(_served(), here))} == {ChannelKind.STATIC}
    dear = replace(here, channels=_costs(5e-4, 2e-4, 3e-4))
    assert {edge.kind for edge in _edges(with_channels(_served(), dear))} == {ChannelKind.DYNAMIC}
    assert not _edges(with_channels(_served(), replace(here, channels=_costs(1, 1, 1))))
    assert not _edges(with_channels(_served(), even_cluster(3), [ChannelKind.STATIC]))  # each rank has its own machine
    assert {edge.kind for edge in _edges(with_channels(_served(), even_cluster(3), [ChannelKind.GRPC]))} == {ChannelKind.GRPC}


def test_a_worker_on_another_machine_gets_the_same_transfer_another_way() -> None:
    cluster = one_machine(3)
    devices = (replace(cluster.devices[0], machine="there"), *cluster.devices[1:])
    link = replace(cluster.links[0], target="there")
    kinds = {
        edge.pair: edge.kind
        for edge in _edges(with_channels(_served(), replace(cluster, devices=devices, links=(*cluster.links, link))))
    }
    assert kinds == {(2, 1): ChannelKind.STATIC, (1, 2): ChannelKind.STATIC}  # what is not named goes by gloo


def test_plans_with_channels_are_proved_priced_shown_and_kept_in_files() -> None:
    program, cluster = example("gpt").program, one_machine(3)
    plan = with_channels(_served(), cluster, [ChannelKind.STATIC])
    assert not verify(program, plan, tiers=[Tier.STRUCTURE]).findings
    assert plan_from_json(plan_to_json(plan)) == plan
    assert digest_of(plan) != digest_of(_served())
    assert "transfer by static" in {one.kind for one in summary_of(plan).communications}
    slow = with_channels(_served(), cluster, [ChannelKind.GRPC])
    seconds = [simulate(each, program, cluster).total_s for each in (plan, _served(), slow)]
    assert seconds == sorted(seconds)
    assert seconds[0] < seconds[2]
    document = document_of(plan)
    other = next(number for number, step in enumerate(plan.steps) if isinstance(step, Apply))
    document.edges[0] = (other, *document.edges[0][1:])
    with pytest.raises(PlanError, match="edges: expected the number of a transfer"):
        plan_of(document)


def test_slots_are_used_again_only_when_nothing_needs_what_lies_there() -> None:
    pipeline = PLANNERS["megatron"](example("gpt").program, one_machine(2), pp=2, microbatches=4)
    plan = with_channels(pipeline, one_machine(2), [ChannelKind.STATIC])
    lanes = lanes_of(plan)
    every = sum(lane.num_bytes for by_pair in lanes.values() for lane in by_pair.values())
    assert sum(slot_bytes_of(lanes).values()) < 0.75 * every  # activations of microbatches follow each other
    for uses in slot_uses(plan).values():
        assert all(first[2] < second[0] for first, second in pairwise(uses))
    apart = {edge.slot for edge in _edges(with_channels(transfers(0, 1, 64, 3), one_machine(2), [ChannelKind.STATIC]))}
    assert apart == {0, 1, 2}  # all three are results, which stay


def test_a_parameter_server_holds_everything_and_workers_pull_and_push() -> None:
    program, plan = with_update(example("gpt").program, "adam"), _adam()
    workers, server = plan.meshes["workers"], plan.meshes["server2"]
    assert (workers.ranks, server.ranks) == ((0, 1), (2,))
    states = {name for name in program.sources if name not in program.inputs}
    assert {plan.tensors[tensor].mesh for name in states for tensor in plan.sources[name]} == {"server2"}
    pushed = [step for step in plan.steps if isinstance(step, Transfer) and plan.tensors[step.target].mesh == "server2"]
    gradients = set(program.gradients.values())
    assert {plan.tensors[step.source].value for step in pushed} == gradients
    assert any(plan.tensors[step.source].layout == (Partial(),) for step in pushed)
    with pytest.raises(PlanError, match="of 3 ranks, 1 to 2 can serve alone, and 3 were asked for"):
        PLANNERS["parameter_server"](program, one_machine(3), servers=3)


@cache
def _adam() -> Plan:
    return PLANNERS["parameter_server"](with_update(example("gpt").program, "adam"), one_machine(3), servers=1)


def test_a_cluster_keeps_its_channels_in_its_file() -> None:
    cluster: Cluster = replace(one_machine(2), channels=_costs(1e-4, 2e-4, 3e-4))
    assert cluster_from_toml(cluster_to_toml(cluster)) == cluster
    assert cluster.digest != one_machine(2).digest
    with pytest.raises(PlanError, match="kind"):
        cluster_from_toml(cluster_to_toml(cluster).replace('"dynamic"', '"gloo"'))
