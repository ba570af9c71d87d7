"""The oracle line of a workload at a rate: how long requests take, and what they cost, if only programs take time.

It is the best result of four clairvoyant schedulers on the same requests: one that starts a batch as soon as it can, one that may
wait for calls that are about to be ready, and the same two with calls that also wait for decisions, which sometimes pays because
batches grow. No schedule is proven to be the best. "Bound" means that a system without foresight, which also pays for networks
and copies, should not get below it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.oracle.recording import Tree
from benchmarks.oracle.replay import Replay, Tally, Times, cheapest_size, follows, needs
from benchmarks.workloads.base import Workload
from dyorc.traffic.arrivals import Poisson

_WARM_UP_RATIO = 0.1
_NS_PER_MS = 1e6


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The line at one rate.

    Attributes:
        p50_ms, p99_ms: Latencies.
        device_ms_per_request: Processor time of all programs.
        mean_batch_size: Mean calls per batch.
    """

    p50_ms: float
    p99_ms: float
    device_ms_per_request: float
    mean_batch_size: float


def lower_bound(
    workload: Workload,
    trees: Sequence[Tree],
    costs: Mapping[str, Times],
    rate_rps: float,
    num_requests: int = 2000,
    seed: int = 0,
    num_cores: int | None = 2,
    num_replicas: int = 1,
) -> Bound:
    """Returns the line at a rate. Each figure is from the scheduler that is best at it.

    Args:
        trees: Recorded requests, which arrive in turn.
        costs: The costs of each program, as measured by `benchmarks.oracle.costs`.
        num_cores: How many batches can run at the same time.
        num_replicas: Replicas of each program, unless the workload says otherwise.

    Raises:
        KeyError: If a called program was not measured.
        InvalidInputError: If sizes are missing from a program's times.
    """
    times_ns = Poisson().times_ns(num_requests, rate_rps, np.random.default_rng(seed)).tolist()
    is_same = all(call.needs == call.follows for tree in trees for call in tree)
    bounds = [
        simulated(workload, replay, times_ns, len(trees), can_hold, num_cores, num_replicas)
        for replay in [Replay.of(trees, costs, edges) for edges in ((needs,) if is_same else (needs, follows))]
        for can_hold in (False, True)
    ]
    return Bound(
        p50_ms=min(bound.p50_ms for bound in bounds),
        p99_ms=min(bound.p99_ms for bound in bounds),
        device_ms_per_request=min(bound.device_ms_per_request for bound in bounds),
        mean_batch_size=max(bound.mean_batch_size for bound in bounds),
    )


def simulated(
    workload: Workload,
    replay: Replay,
    times_ns: Sequence[int],
    num_recorded: int,
    can_hold: bool,
    num_cores: int | None,
    num_replicas: int = 1,
) -> Bound:
    """Returns what one scheduler achieves for requests that arrive at these times. Latencies leave out the first tenth."""
    tally = Tally(num_warmup=int(_WARM_UP_RATIO * len(times_ns)))
    replicas = {name: workload.replicas.get(name, num_replicas) for name in replay.programs}
    arrivals: Iterator[tuple[int, int]] = ((at_ns, at % num_recorded) for at, at_ns in enumerate(times_ns))
    replay.run(arrivals, tally, can_hold=can_hold, num_cores=num_cores, replicas=replicas)
    p50_ms, p99_ms = np.percentile(np.asarray(tally.latencies_ns) / _NS_PER_MS, (50, 99))
    return Bound(
        p50_ms=float(p50_ms),
        p99_ms=float(p99_ms),
        device_ms_per_request=tally.device_ns / _NS_PER_MS / len(times_ns),
        mean_batch_size=tally.num_calls / tally.num_batches,
    )


def calls_per_request(trees: Sequence[Tree]) -> dict[str, float]:
    """Returns how many calls of each program a request makes on average."""
    counts = Counter(call.program for tree in trees for call in tree)
    return {name: number / len(trees) for name, number in counts.items()}


def saturation_rps(
    workload: Workload, trees: Sequence[Tree], costs: Mapping[str, Times], num_cores: int | None = 2, num_replicas: int = 1
) -> float:
    """Returns the rate at which the cores, or one program's replicas, have no time left even with batches of the cheapest
    size."""
    device_s: dict[str, float] = {}
    for name, number in calls_per_request(trees).items():
        size = cheapest_size(costs[name])
        device_s[name] = number * dict(costs[name])[size] / size
    by_replicas = min(workload.replicas.get(name, num_replicas) / seconds for name, seconds in device_s.items())
    return by_replicas if num_cores is None else min(by_replicas, num_cores / sum(device_s.values()))
