"""Simulated runs: one workload under one policy at one rate, or every policy on every workload at every load."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from multiprocessing import get_context
from typing import Any, TypeAlias

import numpy as np

from dyorc.engine.events import RequestArrived
from dyorc.errors import InvalidInputError
from dyorc.simulation.ledger import Ledger, SimulationResult, measure
from dyorc.simulation.plain_evaluation import evaluate, tensor_of
from dyorc.simulation.policies import ORACLE, POLICIES, policy
from dyorc.simulation.value_draws import request_value
from dyorc.simulation.workload import Workload
from dyorc.simulation.workloads import WORKLOADS
from dyorc.simulation.workloads import workload as workload_named
from dyorc.simulation.world import Machines, World
from dyorc.traffic.arrivals import Arrivals, Poisson, Times

LOADS = (0.2, 0.5, 0.8)
Row: TypeAlias = dict[str, Any]

_ARRIVALS_STREAM = 1
_NUM_DRAWN, _SEED = 4000, 0
"""Requests that are evaluated to find out how often each program is called; a tenth if they stream, and so make many calls."""


@dataclass(frozen=True, kw_only=True)
class SimulationSetting:
    """The environment of a run.

    Attributes:
        arrivals: When requests come.
        link_s: One way between engine and replica, in seconds.
        warmup_ratio: The fraction of the requests, from the first on, that is not measured.
    """

    arrivals: Arrivals = field(default_factory=Poisson)
    link_s: float = 100e-6
    warmup_ratio: float = 0.1


DEFAULT_SETTING = SimulationSetting()


def simulate(
    workload: Workload | str,
    policy_name: str,
    *,
    rate_rps: float | None = None,
    load: float | None = None,
    replicas: int | Mapping[str, int] | None = None,
    num_requests: int = 4000,
    seed: int = 0,
    setting: SimulationSetting = DEFAULT_SETTING,
) -> SimulationResult:
    """Runs `num_requests` requests in virtual time. The same arguments give the same result.

    Args:
        rate_rps: Requests per second on average; or
        load: the same as a fraction of the saturation rate under the same replicas.
        replicas: Of every program, or by program; the workload's own if None.

    Raises:
        InvalidInputError: If the workload or the policy is unknown, or not exactly one of rate and load is given.
    """
    workload = workload_named(workload) if isinstance(workload, str) else workload
    chosen = workload.num_replicas(replicas)
    saturation = saturation_rps(workload, chosen)
    if (rate_rps is None) == (load is None):
        raise InvalidInputError("give either a rate or a load")
    rate_rps = rate_rps if rate_rps is not None else (load or 0.0) * saturation
    if policy_name.startswith("timer") and any(program.is_streaming for program in workload.programs):
        raise InvalidInputError(f"workload {workload.name!r} has programs that yield, which {policy_name!r} does not know")
    if policy_name.startswith("timer") and any(program.signature.residents for program in workload.programs):
        raise InvalidInputError(f"workload {workload.name!r} has residents, which {policy_name!r} does not know")
    if rate_rps <= 0 or num_requests < 2:
        raise InvalidInputError(f"{num_requests} requests at {rate_rps} a second; expected at least 2, at more than 0")
    times_ns = setting.arrivals.times_ns(num_requests, rate_rps, np.random.default_rng([seed, _ARRIVALS_STREAM]))
    engine = policy(policy_name)(workload.programs, seed)
    ledger = Ledger([program.name for program in workload.programs], int(setting.warmup_ratio * num_requests))
    machines = Machines(chosen, round(setting.link_s * 1e9))
    World(engine, workload.deployments, machines, ledger).run(_requests(workload, times_ns, seed))
    return measure(
        ledger,
        engine.speculator,
        chosen,
        workload=workload.name,
        policy=policy_name,
        load=round(rate_rps / saturation, 6),
        rate_rps=round(rate_rps, 6),
        num_requests=num_requests,
        seed=seed,
    )


def _requests(workload: Workload, times_ns: Times, seed: int) -> Iterator[tuple[int, RequestArrived]]:
    for request_id, at_ns in enumerate(times_ns.tolist(), 1):
        yield at_ns, RequestArrived(request_id, workload.workflow, (tensor_of(request_value(seed, request_id)),))


@cache
def visits_per_request(workload: Workload) -> dict[str, float]:
    """Returns how many calls of each program a request makes on average, over drawn requests."""
    counts, num_drawn = Counter[str](), _NUM_DRAWN // 10 if workload.workflow.is_streaming else _NUM_DRAWN
    for request_id in range(num_drawn):
        counts.update(program.name for program, _ in evaluate(workload.workflow, [request_value(_SEED, request_id)]).calls)
    return {program.name: counts[program.name] / num_drawn for program in workload.programs}


def saturation_rps(workload: Workload, replicas: Mapping[str, int]) -> float:
    """Returns the requests per second at which the busiest program has no time left although all its batches are full.

    It is the smallest of ``replicas / (visits * T(max_batch_size) / max_batch_size)`` over all programs; the programs of a group,
    which share processes, need theirs one after the other.
    """
    visits = visits_per_request(workload)
    needed_s: dict[str, float] = {}
    num_processes: dict[str, int] = {}
    for deployment in workload.deployments:
        name = deployment.program.name
        owner = deployment.program.options.group or name
        num_processes[owner] = replicas[name]
        needed_s[owner] = needed_s.get(owner, 0.0) + visits[name] * deployment.full_batch_item_s
    return min(num_processes[owner] / seconds for owner, seconds in needed_s.items() if seconds)


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
    """Yields a row for each workload, load and policy, in this order, all on the same requests at the same times.

    A row has the fields of `SimulationResult` and two ratios: ``p50_vs_oracle`` and ``p99_vs_oracle`` are the latencies divided
    by the oracle's; None if `policies` do not include the oracle. Rows come as they are ready; their content does not depend on
    `num_processes`.
    """
    runs = [(workload, load, policy) for workload in workloads for load in loads for policy in policies]
    run = partial(_run, replicas=replicas, num_requests=num_requests, seed=seed, setting=setting)
    if num_processes == 1:
        yield from _with_ratios(map(run, runs), len(policies))
        return
    # Not forked: a child must not inherit the caller's threads.
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
        yield from _with_ratios(pool.map(run, runs), len(policies))


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
