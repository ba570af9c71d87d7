"""Many runs side by side: every policy on every workload at every load, on the same requests at the same times."""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, TypeAlias

from dyorc.simulation.policies import ORACLE, POLICIES
from dyorc.simulation.simulate import DEFAULT_SETTING, SimulationSetting, simulate
from dyorc.simulation.simulation_results import SimulationResult
from dyorc.simulation.workloads import WORKLOADS

LOADS = (0.2, 0.5, 0.8)
Row: TypeAlias = dict[str, Any]


def compare(
    workloads: Sequence[str] = tuple(WORKLOADS),
    policies: Sequence[str] = tuple(POLICIES),
    loads: Sequence[float] = LOADS,
    *,
    replicas: int | Mapping[str, int] | None = None,
    num_requests: int = 4000,
    seed: int = 0,
    setting: SimulationSetting = DEFAULT_SETTING,
    num_processes: int = 1,
) -> Iterator[Row]:
    """Yields the table, one row per workload, load and policy in this order: the fields of `SimulationResult`, and two ratios.

    ``p50_vs_oracle`` and ``p99_vs_oracle`` are the latencies over the oracle's on the same requests; None if it is not among
    `policies`. Rows come as they are ready; their content does not depend on `num_processes`.
    """
    runs = [(workload, load, policy) for workload in workloads for load in loads for policy in policies]
    one = partial(_run, replicas=replicas, num_requests=num_requests, seed=seed, setting=setting)
    if num_processes == 1:
        yield from _with_ratios(map(one, runs), len(policies))
        return
    # Not forked: a child must not inherit the caller's threads.
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
        yield from _with_ratios(pool.map(one, runs), len(policies))


def as_json(rows: Sequence[Row]) -> str:
    """Returns a JSON array with one row on each line."""
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]"


def _run(run: tuple[str, float, str], **options: Any) -> SimulationResult:
    workload, load, policy = run
    return simulate(workload, policy, load=load, **options)


def _with_ratios(results: Iterator[SimulationResult], num_policies: int) -> Iterator[Row]:
    """Sets each group of `num_policies` results, which differ by policy, in relation to the oracle's."""
    for first in results:
        group = [first, *(next(results) for _ in range(num_policies - 1))]
        oracle = next((result for result in group if result.policy == ORACLE), None)
        for result in group:
            ratios = {
                "p50_vs_oracle": round(result.p50_ms / oracle.p50_ms, 4) if oracle else None,
                "p99_vs_oracle": round(result.p99_ms / oracle.p99_ms, 4) if oracle else None,
            }
            yield result.as_row() | ratios
