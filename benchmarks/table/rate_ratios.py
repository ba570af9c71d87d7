"""DyOrc's highest rates beside those of its peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.table.records import ORACLE, OUR_MODES, Highest, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRatio:
    """DyOrc's highest rate within the SLO beside the best peer's.

    Attributes:
        ratio: None if no peer meets the SLO at any rate.
        low, high: The least and the greatest ratio in one turn of the search; None where rates were not found in turns.
        is_at_least: Whether DyOrc may do more, because the load generator was the limit.
        is_at_most: Whether a peer may do more, for the same reason.
    """

    workload: str
    ours: float
    peer: str
    theirs: float
    ratio: float | None
    low: float | None
    high: float | None
    is_at_least: bool
    is_at_most: bool


def rate_ratios(table: Table) -> list[RateRatio]:
    """Returns the ratio of each workload for which highest rates are known; DyOrc's is that of its better mode."""
    ratios: list[RateRatio] = []
    for workload in table.workloads:
        rates = {entry.system: entry for entry in table.highest if entry.workload == workload.name}
        ours = max((rates[mode] for mode in OUR_MODES if mode in rates), key=lambda entry: entry.rps, default=None)
        peers = [entry for system, entry in rates.items() if system not in (*OUR_MODES, ORACLE)]
        if ours is not None and peers:
            ratios.append(_rate_ratio(ours, peers))
    return ratios


def bound(entry: RateRatio) -> str:
    """Returns a mark for what is uncertain about a ratio: "≥ " or "≤ ", "≈ " if it may be either, or nothing."""
    return {(True, False): "≥ ", (False, True): "≤ ", (True, True): "≈ "}.get((entry.is_at_least, entry.is_at_most), "")


def _rate_ratio(ours: Highest, peers: Sequence[Highest]) -> RateRatio:
    best = max(peers, key=lambda entry: entry.rps)
    of_turns = [mine / theirs for mine, theirs in zip(ours.rates_rps, best.rates_rps, strict=False)]
    return RateRatio(
        workload=ours.workload,
        ours=ours.rps,
        peer=best.system,
        theirs=best.rps,
        ratio=ours.rps / best.rps if best.rps else None,
        low=min(of_turns, default=None),
        high=max(of_turns, default=None),
        is_at_least=ours.limited_by_client,
        is_at_most=any(entry.limited_by_client for entry in peers),
    )
