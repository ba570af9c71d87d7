"""Clusters that authors have measured and published, so that their experiments can be simulated.

The authors of HAP and HiDup count 3 flops for a multiply-add and profile each device with their own models, so speeds are far
below what data sheets say. Their bandwidths are whole tensors per second, measured over 4 to 256 MB without a latency; HiDup
adds 0.1 ms to each collective. TAG's rates are its own fit. Which commit a row belongs to was inferred from its contents.

Assumed, because no paper states it: how much memory the devices have where the text names no size, the links inside the machines
of HAP's four-GPU cluster, and the speeds of TAG's devices, which HAP and HiDup measured.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dyorc.errors import PlanError
from dyorc.planner.cluster.cluster import Cluster, Device, Link
from dyorc.planner.cluster.collectives import CollectiveCost, CostLine, fitted_line
from dyorc.planner.cluster.small import links_between
from dyorc.planner.plan.steps import Algorithm, CollectiveKind

_GB = 1_000_000_000
_FLOPS_PER_MULTIPLY_ADD = 3.0
_HIDUP_LATENCY_S = 1e-4
_V100_MOE, _V100_PREMISES, _TI1080, _P100, _A100 = 4.139e12, 3.313e12, 2.22e12, 2.149e12, 5.712e12
"""Flops per second, 3 for a multiply-add. Source: calibrations of HAP and HiDup; for V100 and 1080Ti those of MoE models."""
V100_HAP = 3.859e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """One row of a calibration table, in millions of bytes per second; None where nothing was measured."""

    all_gather: float
    all_reduce: float
    reduce_scatter: float
    all_to_all: float
    all_gather_grouped: float | None = None
    reduce_scatter_grouped: float | None = None


HAP_MACHINES = Rates(
    all_gather=815.4,
    all_gather_grouped=549.8,
    all_reduce=476.8,
    reduce_scatter=876.5,
    reduce_scatter_grouped=512.4,
    all_to_all=7504.5,
)
"""HAP, 8 machines with V100 or P100, 10.4 Gb/s (commit a72b045)."""
HAP_A100_P100 = Rates(
    all_gather=2912.0,
    all_gather_grouped=1823.3,
    all_reduce=1592.0,
    reduce_scatter=2697.9,
    reduce_scatter_grouped=2032.0,
    all_to_all=7881.1,
)
"""HAP, 2 A100 and 2 P100 (commit 885175d)."""
HAP_DEFAULT = Rates(
    all_gather=9463,
    all_gather_grouped=9146,
    all_reduce=5906,
    reduce_scatter=9740,
    reduce_scatter_grouped=8757,
    all_to_all=24588,
)
"""HAP, the default that is checked in (commit b2b5d9e)."""
HIDUP_CLOUD_64 = Rates(all_gather=1224.6, all_reduce=611.7, reduce_scatter=1130.2, all_to_all=10701.2)
"""HiDup, 8 machines with 8 V100 each, 9.71 Gb/s."""
HIDUP_CLOUD_32 = Rates(all_gather=1445.0, all_reduce=644.7, reduce_scatter=1409.5, all_to_all=9295.5)
"""HiDup, 4 machines with 32 cards."""
HIDUP_PREMISES: Mapping[str, tuple[float, Rates]] = {
    "10g": (1.25e9, Rates(all_gather=1625, all_reduce=1171, reduce_scatter=1735, all_to_all=7727)),
    "20g": (2.5e9, Rates(all_gather=2713, all_reduce=1515, reduce_scatter=2791, all_to_all=11486)),
    "30g": (3.75e9, Rates(all_gather=10027, all_reduce=8886, reduce_scatter=9576, all_to_all=31166)),
    "100g": (12.5e9, Rates(all_gather=9946, all_reduce=9207, reduce_scatter=10626, all_to_all=32336)),
}
"""HiDup, machines g12 and g13 with 4 V100 each, by what `tc` lets through (100g: all): the link's bytes per second, rates.

The row for 30 Gb/s is as fast as the one without a limit, as published.
"""
HIDUP_NVLINK: Mapping[int, Rates] = {
    2: Rates(all_gather=22900, all_reduce=17500, reduce_scatter=23100, all_to_all=44700),
    4: Rates(all_gather=43000, all_reduce=38900, reduce_scatter=50600, all_to_all=111000),
    8: Rates(all_gather=48200, all_reduce=50500, reduce_scatter=58300, all_to_all=134800),
}
"""HiDup, V100 with NVLink in one machine, by how many."""
HAP_FIGURE_4 = {
    0.25: (6.71, 3.98),
    0.31: (5.60, 3.81),
    0.37: (5.08, 3.99),
    0.43: (4.30, 4.14),
    0.49: (3.89, 4.24),
    0.55: (3.34, 3.95),
    0.67: (3.01, 4.00),
    0.79: (2.58, 4.23),
    0.97: (2.31, 4.69),
}
"""HAP, figure 4, digitised: all-gather of 4 MB on two machines with two A100 each. The largest shard's part of the bytes ->
billions of bytes per second, padded and grouped.
"""
TAG_NCCL = (CostLine(211.9e-6, 0.2777e-6 / 1024), CostLine(368.2e-6, 0.0434e-6 / 1024))
"""TAG's fit of NCCL's all-reduce: the higher of two lines, one fitted above 1 MB and one below 256 KB."""
TAG_NCCL_AT = 2810e6
"""Bytes per second of the link that TAG's fit belongs to."""
TAG_INTER, TAG_LATENCY_S = 2810e6, 12e-6


def published(name: str, *, gpus_per_machine: int = 1) -> Cluster:
    """Returns a published cluster.

    Args:
        name: One of `published_names()`.
        gpus_per_machine: For `hap-8-machines`, whose ranks are machines: with 1, 2, 4 and 8 it has HAP's 8, 16, 32 and 64 GPUs.

    Raises:
        PlanError: No cluster has that name.
    """
    if name not in _CLUSTERS:
        raise PlanError(f"unknown published cluster {name!r}; choose one of {', '.join(published_names())}")
    cluster = _CLUSTERS[name]()
    if gpus_per_machine == 1:
        return cluster
    if name != "hap-8-machines":
        raise PlanError(f"the ranks of {name} are GPUs: gpus_per_machine is for hap-8-machines")
    return _with_gpus(cluster, gpus_per_machine)


def published_names() -> tuple[str, ...]:
    """Returns the names of all published clusters."""
    return tuple(_CLUSTERS)


def tag_cluster(machines: Sequence[tuple[str, int, float]], inter_bytes_per_s: float = TAG_INTER, name: str = "tag") -> Cluster:
    """Returns a cluster as TAG describes one, with its fit of NCCL's all-reduce.

    Args:
        machines: For each machine its model of GPU (a key of `TAG_DEVICES`), how many, and the bytes per second between them.
        inter_bytes_per_s: Between machines.
        name: For people.
    """
    names = [f"machine-{index}" for index in range(len(machines))]
    devices = tuple(
        replace(TAG_DEVICES[model], machine=machine)
        for machine, (model, count, _) in zip(names, machines, strict=True)
        for _ in range(count)
    )
    inside = tuple(
        Link(source=machine, target=machine, bytes_per_s=rate, latency_s=TAG_LATENCY_S)
        for machine, (_, _, rate) in zip(names, machines, strict=True)
    )
    cost = CollectiveCost(kind=CollectiveKind.ALL_REDUCE, lines=TAG_NCCL, at_bytes_per_s=TAG_NCCL_AT, is_everywhere=True)
    return Cluster(
        name=name,
        devices=devices,
        links=(*inside, *links_between(names, inter_bytes_per_s, TAG_LATENCY_S)),
        collectives=(cost,),
        flops_per_multiply_add=_FLOPS_PER_MULTIPLY_ADD,
        source="TAG (TPDS'23), its code's testbed and fit of NCCL; speeds of devices from HAP and HiDup",
    )


def _device(name: str, flops_per_s: float, memory_gb: int) -> Device:
    return Device(name=name, machine="", flops_per_s=flops_per_s, memory_bytes=memory_gb * _GB)


TAG_DEVICES: Mapping[str, Device] = {
    "V100": _device("V100", _V100_MOE, 30),
    "1080Ti": _device("1080Ti", _TI1080, 9),
    "P100": _device("P100", _P100, 10),
    "V100-14G": _device("V100", _V100_MOE, 14),
}
"""TAG's devices and their budgets of memory; `V100-14G` is that of its random topologies."""


def _costs(rates: Rates, counts: tuple[int, ...], latency_s: float = 0.0) -> tuple[CollectiveCost, ...]:
    padded, grouped = Algorithm.PADDED, Algorithm.GROUPED
    rows = [
        (CollectiveKind.ALL_GATHER, padded, rates.all_gather),
        (CollectiveKind.ALL_GATHER, grouped, rates.all_gather_grouped),
        (CollectiveKind.ALL_REDUCE, padded, rates.all_reduce),
        (CollectiveKind.REDUCE_SCATTER, padded, rates.reduce_scatter),
        (CollectiveKind.REDUCE_SCATTER, grouped, rates.reduce_scatter_grouped),
        (CollectiveKind.ALL_TO_ALL, padded, rates.all_to_all),
    ]
    return tuple(
        CollectiveCost(kind=kind, algorithm=algorithm, lines=(CostLine(latency_s, 1 / (rate * 1e6)),), devices_by_machine=counts)
        for kind, algorithm, rate in rows
        if rate is not None
    )


def _cluster(
    name: str,
    machines: Sequence[tuple[Device, int]],
    rates: Rates,
    links: tuple[float, float],
    latency_s: float = 0.0,
) -> Cluster:
    """Builds a cluster from machines (their device and how many), and the links inside and between them in bytes per second."""
    names = [f"machine-{index}" for index in range(len(machines))]
    inside, between = links
    return Cluster(
        name=name,
        devices=tuple(
            replace(device, machine=machine)
            for machine, (device, count) in zip(names, machines, strict=True)
            for _ in range(count)
        ),
        links=(
            *(Link(source=machine, target=machine, bytes_per_s=inside, latency_s=latency_s) for machine in names),
            *links_between(names, between, latency_s),
        ),
        collectives=_costs(rates, tuple(count for _, count in machines), latency_s),
        flops_per_multiply_add=_FLOPS_PER_MULTIPLY_ADD,
        source="calibration in the public code of " + ("HiDup (SoCC'22)" if latency_s else "HAP (EuroSys'24)"),
    )


def _with_gpus(cluster: Cluster, count: int) -> Cluster:
    """HAP's virtual devices: a machine whose GPUs divide its rank's work evenly among themselves."""
    devices = tuple(
        replace(
            device,
            name=f"{count}x {device.name}",
            flops_per_s=count * device.flops_per_s,
            memory_bytes=count * device.memory_bytes,
        )
        for device in cluster.devices
    )
    return replace(cluster, name=f"{cluster.name}-{count}", devices=devices)


def _hap_machines() -> Cluster:
    v100, p100 = _device("V100", V100_HAP, 16), _device("P100", _P100, 16)
    machines = [(v100, 1)] * 2 + [(p100, 1)] * 6
    return _cluster("hap-8-machines", machines, HAP_MACHINES, (1.3e9, 1.3e9))


def _hap_a100_p100() -> Cluster:
    machines = [(_device("A100", _A100, 40), 2), (_device("P100", _P100, 16), 2)]
    # links: inside a PCIe's; between them what the all-gather implies, 3/4 of its rate
    return _cluster("hap-2a100-2p100", machines, HAP_A100_P100, (10e9, 2.184e9))


def _hap_default() -> Cluster:
    return _cluster("hap-default", [(_device("A100", 5.967e12, 40), 2)] * 2, HAP_DEFAULT, (10e9, 7.097e9))


def _hap_figure_4() -> Cluster:
    """The cluster of figure 4, with costs fitted to its points: the calibration tables have no latencies."""
    base, size = _hap_default(), 4e6
    padded = fitted_line([(4 * ratio * size, size / (rate * 1e9)) for ratio, (rate, _) in HAP_FIGURE_4.items()])
    grouped = sum(size / (rate * 1e9) for _, rate in HAP_FIGURE_4.values()) / len(HAP_FIGURE_4)
    gather, counts = CollectiveKind.ALL_GATHER, (2, 2)
    costs = (
        CollectiveCost(kind=gather, lines=(padded,), devices_by_machine=counts),
        # measured with one size, so the latency is not known: the padded one's
        CollectiveCost(
            kind=gather,
            algorithm=Algorithm.GROUPED,
            lines=(CostLine(padded.latency_s, (grouped - padded.latency_s) / size),),
            devices_by_machine=counts,
        ),
    )
    others = tuple(cost for cost in base.collectives if cost.kind is not gather)
    return replace(base, name="hap-figure-4", collectives=costs + others, source="HAP (EuroSys'24), figure 4, digitised")


def _hidup_cloud(name: str, num_machines: int, rates: Rates) -> Cluster:
    v100 = _device("V100", _V100_MOE, 16)
    return _cluster(name, [(v100, 8)] * num_machines, rates, (_inside(8), 9.71e9 / 8), _HIDUP_LATENCY_S)


def _hidup_premises(limit: str) -> Cluster:
    between, rates = HIDUP_PREMISES[limit]
    machines = [(_device("V100", _V100_PREMISES, 16), 4)] * 2
    return _cluster(f"hidup-2x4-{limit}", machines, rates, (_inside(4), between), _HIDUP_LATENCY_S)


def _hidup_nvlink(count: int) -> Cluster:
    machines = [(_device("V100", _V100_PREMISES, 16), count)]
    return _cluster(f"hidup-nvlink-{count}", machines, HIDUP_NVLINK[count], (_inside(count), _inside(count)), _HIDUP_LATENCY_S)


def _inside(count: int) -> float:
    """What the all-gather over NVLink implies of each link of a ring."""
    return HIDUP_NVLINK[count].all_gather * 1e6 * (count - 1) / count


def _tag_testbed() -> Cluster:
    machines = [("V100", 4, 8000e6)] + [("1080Ti", 2, 3000e6)] * 4 + [("P100", 2, 3000e6)] * 2
    return tag_cluster(machines, name="tag-testbed")


_CLUSTERS: Mapping[str, Callable[[], Cluster]] = {
    "hap-8-machines": _hap_machines,
    "hap-2a100-2p100": _hap_a100_p100,
    "hap-default": _hap_default,
    "hap-figure-4": _hap_figure_4,
    "hidup-8x8": lambda: _hidup_cloud("hidup-8x8", 8, HIDUP_CLOUD_64),
    "hidup-4x8": lambda: _hidup_cloud("hidup-4x8", 4, HIDUP_CLOUD_32),
    "hidup-2x4-10g": lambda: _hidup_premises("10g"),
    "hidup-2x4-20g": lambda: _hidup_premises("20g"),
    "hidup-2x4-30g": lambda: _hidup_premises("30g"),
    "hidup-2x4-100g": lambda: _hidup_premises("100g"),
    "hidup-nvlink-2": lambda: _hidup_nvlink(2),
    "hidup-nvlink-4": lambda: _hidup_nvlink(4),
    "hidup-nvlink-8": lambda: _hidup_nvlink(8),
    "tag-testbed": _tag_testbed,
}
