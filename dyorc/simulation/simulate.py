"""One simulated run: a workload, a policy, a rate."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from dyorc.engine.events import RequestArrived
from dyorc.errors import InvalidInputError
from dyorc.simulation.ledger import Ledger
from dyorc.simulation.plain import tensor_of
from dyorc.simulation.policies import guesses, policy
from dyorc.simulation.saturation import saturation_rps
from dyorc.simulation.simulation_results import SimulationResult, measure
from dyorc.simulation.value_draws import request_value
from dyorc.simulation.workload import Workload
from dyorc.simulation.workloads import workload as workload_named
from dyorc.simulation.world import Machines, World
from dyorc.traffic.arrivals import Arrivals, Poisson, Times

_ARRIVALS_STREAM = 1


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
        InvalidInputError: If there is no such workload or policy, or not exactly one of rate and load is given.
    """
    workload = workload_named(workload) if isinstance(workload, str) else workload
    chosen = workload.num_replicas(replicas)
    saturation = saturation_rps(workload, chosen)
    if (rate_rps is None) == (load is None):
        raise InvalidInputError("give a rate or a load, and not both")
    rate_rps = rate_rps if rate_rps is not None else (load or 0.0) * saturation
    if rate_rps <= 0 or num_requests < 2:
        raise InvalidInputError(f"{num_requests} requests at {rate_rps} a second; expected at least 2, at more than 0")
    times_ns = setting.arrivals.times_ns(num_requests, rate_rps, np.random.default_rng([seed, _ARRIVALS_STREAM]))
    engine = policy(policy_name)(workload.programs, seed)
    ledger = Ledger([program.name for program in workload.programs], int(setting.warmup_ratio * num_requests))
    machines = Machines(chosen, round(setting.link_s * 1e9))
    World(engine, workload.deployments, machines, ledger).run(_requests(workload, times_ns, seed))
    return measure(
        ledger,
        guesses(engine),
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
