"""The goals of the tiers, relative to peers measured in the same run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

Table: TypeAlias = Mapping[tuple[str, int], float]
"""Microseconds per hop by tier and bytes."""

_LARGE_BYTES = 2**20
_RAY = ("ray_actor", "ray_put_get")


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One goal.

    Attributes:
        value: The measured value; None if a measurement that it needs is missing.
        limit: The value to compare it with.
        is_met: Whether the goal is met; None if it was not measured.
    """

    meaning: str
    value: float | None
    limit: float
    is_met: bool | None

    @classmethod
    def at_most(cls, meaning: str, limit: float, values: Sequence[float | None]) -> Goal:
        """Returns a goal that the largest value meets if it is at most the limit."""
        known = [value for value in values if value is not None]
        value = round(max(known), 3) if known else None
        return cls(meaning=f"most of {meaning}", value=value, limit=limit, is_met=None if value is None else value <= limit)

    @classmethod
    def at_least(cls, meaning: str, limit: float, values: Sequence[float | None]) -> Goal:
        """Returns a goal that the smallest value meets if it is at least the limit."""
        known = [value for value in values if value is not None]
        value = round(min(known), 3) if known else None
        return cls(meaning=f"least of {meaning}", value=value, limit=limit, is_met=None if value is None else value >= limit)


def judge(table: Table) -> dict[str, object]:
    """Returns all goals by name; they are about sizes from 1 MiB."""
    sizes = sorted({size for _, size in table if size >= _LARGE_BYTES})
    goals = {
        "copy_vs_memcpy": Goal.at_most(
            "shared_memory_view / memcpy",
            1.2,
            [_ratio(table, size, ("shared_memory_view",), ("memcpy",)) for size in sizes],
        ),
        "copy_vs_memcpy_without_message": Goal.at_most(
            "(shared_memory_view - message) / memcpy",
            1.2,
            [_ratio(table, size, ("shared_memory_view",), ("memcpy",), without="message") for size in sizes],
        ),
        "copy_vs_memcpy_from_16_mib": Goal.at_most(
            "shared_memory_view / memcpy, from 16 MiB",
            1.2,
            [_ratio(table, size, ("shared_memory_view",), ("memcpy",)) for size in sizes if size >= 16 * 2**20],
        ),
        "view_64_mib_vs_1_mib": Goal.at_most(
            "shared_memory_again at the largest size / at the smallest", 1.3, [_growth(table, "shared_memory_again", sizes)]
        ),
        "zmq_vs_raw": Goal.at_most(
            "zmq_tensors / raw_zmq_tcp", 1.3, [_ratio(table, size, ("zmq_tensors",), ("raw_zmq_tcp",)) for size in sizes]
        ),
        "grpc_vs_raw": Goal.at_most(
            "grpc_tensors / grpc", 1.3, [_ratio(table, size, ("grpc_tensors",), ("grpc",)) for size in sizes]
        ),
        "ray_vs_shared_memory_without_copy": Goal.at_least(
            "the better of Ray's ways / the better of shared_memory_again and shared_memory_empty",
            10.0,
            [_ratio(table, size, _RAY, ("shared_memory_again", "shared_memory_empty")) for size in sizes],
        ),
        "ray_vs_shared_memory": Goal.at_least(
            "the better of Ray's ways / shared_memory_view",
            10.0,
            [_ratio(table, size, _RAY, ("shared_memory_view",)) for size in sizes],
        ),
    }
    return {name: asdict(goal) for name, goal in goals.items()}


def _ratio(table: Table, size: int, tiers: tuple[str, ...], peers: tuple[str, ...], without: str | None = None) -> float | None:
    """Returns the best of `tiers` divided by the best of `peers`; None if a measurement is missing."""
    ours = [table[tier, size] for tier in tiers if (tier, size) in table]
    theirs = [table[peer, size] for peer in peers if (peer, size) in table]
    if not ours or not theirs or (without is not None and (without, size) not in table):
        return None
    return (min(ours) - (table[without, size] if without else 0.0)) / min(theirs)


def _growth(table: Table, tier: str, sizes: list[int]) -> float | None:
    if not sizes or any((tier, size) not in table for size in (sizes[0], sizes[-1])):
        return None
    return table[tier, sizes[-1]] / table[tier, sizes[0]]
