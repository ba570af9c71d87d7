"""Small clusters with round figures, for tests and examples."""

from collections.abc import Sequence

from dyorc.planner.cluster.cluster import Cluster, Device, Link


def even_cluster(
    num_ranks: int,
    *,
    flops_per_s: float = 1e12,
    bytes_per_s: float = 1e9,
    latency_s: float = 1e-5,
    memory_bytes: int = 16_000_000_000,
) -> Cluster:
    """Returns a cluster of equal machines with one device each."""
    return uneven_cluster(
        [1.0] * num_ranks, flops_per_s=flops_per_s, bytes_per_s=bytes_per_s, latency_s=latency_s, memory_bytes=memory_bytes
    )


def uneven_cluster(
    speeds: Sequence[float],
    *,
    flops_per_s: float = 1e12,
    bytes_per_s: float = 1e9,
    latency_s: float = 1e-5,
    memory_bytes: int = 16_000_000_000,
) -> Cluster:
    """Returns a cluster of machines with one device each, whose speeds are multiples of `flops_per_s`: `[3, 1]` for one that is
    three times as fast as the other.
    """
    machines = [f"machine-{rank}" for rank in range(len(speeds))]
    devices = tuple(
        Device(name=f"{speed:g}x", machine=machine, flops_per_s=speed * flops_per_s, memory_bytes=memory_bytes)
        for machine, speed in zip(machines, speeds, strict=True)
    )
    link = Link(source="", target="", bytes_per_s=bytes_per_s, latency_s=latency_s)
    return Cluster(name=":".join(f"{speed:g}" for speed in speeds), devices=devices, links=(), between_all=link)


def one_machine(num_ranks: int, *, bytes_per_s: float = 1e9, latency_s: float = 2e-4) -> Cluster:
    """Returns a cluster of one machine with equal devices, the link between which is gloo's."""
    device = Device(name="rank", machine="here", flops_per_s=1e12, memory_bytes=16_000_000_000)
    link = Link(source="here", target="here", bytes_per_s=bytes_per_s, latency_s=latency_s)
    return Cluster(name=f"{num_ranks} on one machine", devices=(device,) * num_ranks, links=(link,))


def links_between(machines: Sequence[str], bytes_per_s: float, latency_s: float = 0.0) -> tuple[Link, ...]:
    """Returns a link of one speed between each two machines."""
    return tuple(
        Link(source=source, target=target, bytes_per_s=bytes_per_s, latency_s=latency_s)
        for index, target in enumerate(machines)
        for source in machines[:index]
    )
