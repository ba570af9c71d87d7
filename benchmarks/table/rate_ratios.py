"""DyOrc's highest rates beside those of its peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.table.records import ORACLE, OURS, Highest, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRatio:
    """DyOrc's highest rate within the SLO beside the best peer's.

    Attributes:
        ratio: None if no peer meets the SLO at any rate.
        is_at_least: Whether DyOrc may do more, because the load generator was the limit.
        is_at_most: Whether a peer may do more, for the same reason.
    """

    workload: str
    ours: float
    peer: str
    theirs: float
    ratio: float | None
    is_at_least: bool
    is_at_most: bool


def rate_ratios(table: Table) -> list[RateRatio]:
    """Returns the ratio of each workload for which highest rates are known."""
    found: list[RateRatio] = []
    for workload in table.workloads:
        rates = {entry.system: entry for entry in table.highest if entry.workload == workload.name}
        ours = rates.pop(OURS, None)
        peers = [entry for system, entry in rates.items() if system != ORACLE]
        if ours is not None and peers:
            found.append(_rate_ratio(ours, peers))
    return found


def bound(entry: RateRatio) -> str:
    """Returns a mark for what is uncertain about a ratio: "≥ " or "≤ ", "≈ " if it may be either, or nothing."""
    return {(True, False): "≥ ", (False, True): "≤ ", (True, True): "≈ "}.get((entry.is_at_least, entry.is_at_most), "")


def _rate_ratio(ours: Highest, peers: Sequence[Highest]) -> RateRatio:
    best = max(peers, key=lambda entry: entry.rps)
    return RateRatio(
        workload=ours.workload,
        ours=ours.rps,
        peer=best.system,
        theirs=best.rps,
        ratio=ours.rps / best.rps if best.rps else None,
        is_at_least=ours.limited_by_client,
        is_at_most=any(entry.limited_by_client for entry in peers),
    )
