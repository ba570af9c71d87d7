"""What is derived from measured times: the times are given here."""

from collections.abc import Sequence
from math import prod

import pytest

from dyorc.planner.cluster import Cluster, Contention, CostLine, driving_bytes
from dyorc.planner.measure import Effort, measured_cluster
from dyorc.planner.plan import Apply, ChannelKind, Collective, CollectiveKind, Plan, Transfer
from dyorc.planner.runtime import LinkShape, RankOptions

_FLOPS_PER_S, _BYTES_PER_S, _OVERHEAD_S = (8e9, 2e9), (4e9, 1e9), (2e-6, 8e-6)
_VIEW_S = (3e-6, 12e-6)
_LINK = CostLine(0.02, 1e-7)
_COLLECTIVE = CostLine(0.03, 2e-7)
_BOTH = Contention(computing=1.25, communicating=1.6, waiting_s=0.02)
_EFFORT = Effort(num_repeats=3, chain=4, matrices=(16, 64, 256), vectors=(1 << 12, 1 << 18), messages=(1 << 12, 1 << 18))


def _times(plan: Plan, num_repeats: int, *, overlap: bool = False) -> Sequence[tuple[float, ...]]:
    """Two ranks, the second a quarter as fast. Every plan is disturbed once, and each rank may have waited for the other."""
    seconds = [0.0, 0.0]
    if overlap:
        return [(0.0, _both_s(plan))] * num_repeats
    for step in plan.steps:
        mesh = plan.mesh_of(step.outputs[0])
        num_bytes = plan.piece_bytes(step.outputs[0], mesh.coordinates[0])
        for rank in mesh.ranks:
            seconds[rank] += _step_s(plan, step, rank, num_bytes)
    waited = [seconds[0] + 0.5, seconds[1]] if any(isinstance(step, Collective) for step in plan.steps) else seconds
    return [tuple(waited)] * (num_repeats - 1) + [tuple(10 * one for one in waited)]


def _both_s(plan: Plan) -> float:
    """What the slower rank takes: while it does both, each takes longer."""
    sums = {Apply: 0.0, Collective: 0.0}
    for step in plan.steps:
        sums[type(step)] += _step_s(plan, step, 1, 0)
    num = sum(isinstance(step, Collective) for step in plan.steps)
    computing_s, communicating_s = sums[Apply] * _BOTH.computing, sums[Collective] * _BOTH.communicating + num * _BOTH.waiting_s
    if computing_s < communicating_s:  # at first, both; then what is left of the longer one
        return computing_s + sums[Collective] * (1 - computing_s / communicating_s)
    return communicating_s + sums[Apply] * (1 - communicating_s / computing_s)


def _step_s(plan: Plan, step: object, rank: int, num_bytes: int) -> float:
    match step:
        case Apply(op="aten.mm.default", outputs=(output,)):
            rows, columns = plan.values[plan.tensors[output].value].shape
            return _OVERHEAD_S[rank] + 2 * rows * columns * columns / _FLOPS_PER_S[rank]
        case Apply(op="aten.view.default"):
            return _VIEW_S[rank]
        case Apply():
            return _OVERHEAD_S[rank] + 3 * num_bytes / _BYTES_PER_S[rank]
        case Collective(kind=kind, algorithm=algorithm, source=source):
            whole = 4 * prod(plan.values[plan.tensors[source].value].shape)
            pieces = [whole if kind is CollectiveKind.ALL_REDUCE else whole // 2] * 2
            return _COLLECTIVE.latency_s + _COLLECTIVE.s_per_byte * driving_bytes(kind, algorithm, pieces)
        case Transfer():
            return _LINK.latency_s + _LINK.s_per_byte * num_bytes
        case _:
            raise AssertionError(step)


def _measured(options: RankOptions, told: list[tuple[str, int, int]]) -> Cluster:
    return measured_cluster(_times, options, _EFFORT, lambda *what: told.append(what))


@pytest.mark.parametrize("is_shaped", [True, False])
def test_devices_links_and_collectives_are_the_lines_through_what_was_measured(is_shaped: bool) -> None:
    shape = LinkShape(bytes_per_s=1e7, latency_s=0.02)
    links = {(0, 1): shape, (1, 0): shape} if is_shaped else {}
    told: list[tuple[str, int, int]] = []
    cluster = _measured(RankOptions(num_ranks=2, slowness=(1.0, 4.0), links=links), told)
    assert [done for _, done, _ in told] == list(range(told[0][2]))
    assert [device.machine for device in cluster.devices] == (["rank-0", "rank-1"] if is_shaped else ["here", "here"])
    assert [device.flops_per_s for device in cluster.devices] == pytest.approx(_FLOPS_PER_S, rel=1e-3)
    assert [device.memory_bytes_per_s for device in cluster.devices] == pytest.approx(_BYTES_PER_S, rel=1e-3)
    assert [device.overhead_s for device in cluster.devices] == pytest.approx(_OVERHEAD_S, rel=1e-3)
    assert [device.view_s for device in cluster.devices] == pytest.approx(_VIEW_S, rel=1e-3)
    assert cluster.contention is not None
    assert cluster.contention.computing == pytest.approx(_BOTH.computing, rel=1e-3)
    assert cluster.contention.communicating == pytest.approx(_BOTH.communicating, rel=1e-3)
    assert cluster.contention.waiting_s == pytest.approx(_BOTH.waiting_s, rel=1e-3)
    (link,) = cluster.links
    assert (link.latency_s, 1 / link.bytes_per_s) == pytest.approx((_LINK.latency_s, _LINK.s_per_byte), rel=1e-3)
    for channel in cluster.channels:
        assert (channel.latency_s, 1 / channel.bytes_per_s) == pytest.approx((_LINK.latency_s, _LINK.s_per_byte), rel=1e-3)
    kinds = [] if is_shaped else [ChannelKind.STATIC, ChannelKind.DYNAMIC, ChannelKind.GRPC]
    assert [channel.kind for channel in cluster.channels] == kinds
    assert len(cluster.collectives) == len({(cost.kind, cost.algorithm) for cost in cluster.collectives}) == 10
    for cost in cluster.collectives:
        assert cost.devices_by_machine == ((1, 1) if is_shaped else (2,))
        (line,) = cost.lines
        assert (line.latency_s, line.s_per_byte) == pytest.approx((_COLLECTIVE.latency_s, _COLLECTIVE.s_per_byte), rel=1e-3)
