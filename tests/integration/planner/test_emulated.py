"""Ranks that emulate machines: no message is faster than its limit, no computation faster than its device, results are equal."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dyorc.planner.cluster import even_cluster
from dyorc.planner.planners.joint.bandwidth import Capacities
from dyorc.planner.planners.joint.heuristics import PlacementProblem
from dyorc.planner.planners.joint.interface_limits import network_of
from dyorc.planner.planners.joint.list_schedule import LinkModel
from dyorc.planner.planners.joint.reduce import reduce_work
from dyorc.planner.planners.joint.schedule_plan import build_plan
from dyorc.planner.runtime import RankForkServer, RankOptions, Ranks, egress_of, paces_of
from dyorc.planner.runtime.egress import EgressShaper
from dyorc.planner.simulate import simulate
from tests.unit.planner.examples import example


def test_emulated_machines_are_no_faster_than_simulated_ones(fork_server: RankForkServer) -> None:
    found = example("gpt")
    cluster = even_cluster(3, flops_per_s=1e7, bytes_per_s=1e7, latency_s=1e-3)
    wires = LinkModel(cluster, Capacities(cluster).even_rates())
    near = even_cluster(3, flops_per_s=1e7)  # so near that not all runs on one
    work = reduce_work(found.program, near, 16).work
    in_turns = tuple(home % 3 for home in range(work.num_homes))  # devices mostly wait for each other
    plan = build_plan(found.program, cluster, work, PlacementProblem(work, wires).evaluate(in_turns))
    network = network_of(Capacities(cluster).even_rates(), cluster, is_strict=True)
    plan = replace(plan, network=network)
    simulated = simulate(plan, found.program, cluster)
    assert sum(simulated.communication_s) > 0
    with Ranks(RankOptions(num_ranks=3, egress=egress_of(cluster, network)), fork_server.fork) as ranks:
        ranks.load(plan, found.sources, overlap=True, paces=tuple(paces_of(plan, found.program, cluster)))
        began_s = time.monotonic()
        ranks.begin_step({name: found.sources[name] for name in found.program.inputs})
        ran = ranks.end_step()
        took_s = time.monotonic() - began_s  # a rank's own clock starts when it begins, which may be late
    for name, tensor in found.results.items():
        torch.testing.assert_close(ran.results[name], tensor, rtol=0, atol=1e-9)
    assert took_s >= 0.97 * simulated.total_s


@pytest.mark.parametrize(
    ("under_way", "is_strict", "expected"),
    [
        ({0: [1]}, True, {(0, 1): 500}),
        ({0: [1]}, False, {(0, 1): 1000}),
        ({0: [1, 2]}, False, {(0, 1): 500, (0, 2): 500}),
        ({0: [1], 2: [1]}, False, {(0, 1): 500, (2, 1): 500}),  # they share the way in
        ({0: [1, 1, 2]}, False, {(0, 1): 250, (0, 2): 500}),
    ],
)
def test_what_is_lent_to_whom(
    tmp_path: Path, under_way: Mapping[int, list[int]], is_strict: bool, expected: Mapping[tuple[int, int], float]
) -> None:
    cluster = even_cluster(3, bytes_per_s=1000)
    egress = egress_of(cluster, network_of(Capacities(cluster).even_rates(), cluster, is_strict=is_strict))
    ways = [EgressShaper(egress, rank, tmp_path / "egress") for rank in range(3)]
    for rank, machines in under_way.items():
        for machine in machines:
            ways[rank].mark(machine, 1)
    for (rank, machine), rate in expected.items():
        assert ways[rank].rate(machine) == pytest.approx(rate, rel=1e-3)
    for way in ways:
        way.close()
