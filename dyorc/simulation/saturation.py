"""How many requests per second a workload's replicas can serve."""

from collections import Counter
from collections.abc import Mapping
from functools import cache

from dyorc.simulation.plain import evaluate
from dyorc.simulation.value_draws import request_value
from dyorc.simulation.workload import Workload

_NUM_DRAWN = 4000
_SEED = 0


@cache
def visits_per_request(workload: Workload) -> dict[str, float]:
    """Returns how many calls of each program a request makes on average, over 4,000 drawn requests."""
    counts = Counter[str]()
    for request_id in range(_NUM_DRAWN):
        counts.update(program.name for program, _ in evaluate(workload.workflow, [request_value(_SEED, request_id)]).calls)
    return {program.name: counts[program.name] / _NUM_DRAWN for program in workload.programs}


def saturation_rps(workload: Workload, replicas: Mapping[str, int]) -> float:
    """Returns the rate at which the busiest program has no time left though all its batches are full.

    It is the smallest of ``replicas / (visits * T(max_batch_size) / max_batch_size)`` over all programs.
    """
    visits = visits_per_request(workload)
    return min(
        replicas[name] / (visits[name] * deployment.full_batch_item_s)
        for deployment in workload.deployments
        if visits[name := deployment.program.name]
    )
