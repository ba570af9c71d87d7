"""How thorough a run of the benchmark is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.table.measure import Terms
from benchmarks.table.records import OUR_CELL, OURS
from benchmarks.table.rounds import Rule
from benchmarks.table.systems import SYSTEMS
from benchmarks.workloads import NAMES


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One kind of run.

    Attributes:
        finds_highest: Whether to search for each system's highest rate within the SLO, and to derive the loads from it. If not,
            they are derived from a rate that is known.
        has_rounds: Whether to measure at those loads. If not, only highest rates are found.
        num_oracle_requests: With how many requests the oracle's line is simulated at each load.
        systems, workloads: Measured unless others are asked for.
    """

    terms: Terms
    rule: Rule
    finds_highest: bool
    has_rounds: bool = True
    systems: Sequence[str] = tuple(SYSTEMS)
    workloads: Sequence[str] = NAMES
    num_oracle_requests: int = 2000


_FULL = Plan(
    rule=Rule(min_rounds=3, max_rounds=6),
    finds_highest=True,
    terms=Terms(duration_s=2.0, max_duration_s=6.0, num_requests=60, probe_s=1.2, drain_s=1.5),
)
PLANS = {
    "quick": Plan(
        rule=Rule(min_rounds=1, max_rounds=1),
        finds_highest=False,
        systems=(OURS, OUR_CELL, "ray_throughput", "triton", "mosec"),
        terms=Terms(duration_s=1.0, max_duration_s=4.0, num_requests=30, probe_s=1.0, warm_up_s=0.3, drain_s=1.0),
        num_oracle_requests=600,
    ),
    "full": _FULL,
}
"""``quick``: one peer of each kind (programs composed by a server, by the client, in one process). ``full``: everything."""

DEVICE_PLANS = {
    "quick": Plan(
        rule=Rule(min_rounds=2, max_rounds=2),
        finds_highest=False,
        systems=(OUR_CELL, "triton", "mosec"),
        workloads=("cascade", "guarded", "loop"),
        terms=Terms(duration_s=1.5, max_duration_s=3.0, num_requests=60, probe_s=1.0, drain_s=1.5),
        num_oracle_requests=600,
    ),
    "full": _FULL,
}
"""The same for programs on emulated accelerators; ``quick`` takes a few minutes, and so leaves out Ray, which starts slowly."""
