"""Reads layouts as plans write them, such as `R|S0(8*4,6)`: for each axis `R`, `P`, or a dimension and its shards."""

import re
from collections.abc import Mapping

from dyorc.errors import PlanError
from dyorc.planner.plan.layout import Layout
from dyorc.planner.program import PARTIAL, REPLICATE, Placement, Shard

_MAX_SHOWN = 80
_MAX_SHARDS = 1 << 20
"""Far more than a mesh has ranks: a line of a few bytes could otherwise fill the memory."""
_RUN = r"\d{1,18}(?:\*[1-9]\d{0,6})?"
_SHARD = re.compile(rf"S(\d{{1,9}})(?:\(({_RUN}(?:,{_RUN})*)\))?", re.ASCII)
_WITHOUT_SIZES: Mapping[str, Placement] = {"R": REPLICATE, "P": PARTIAL}


def layout_of(text: str, place: str) -> Layout:
    """Returns a layout.

    Args:
        place: Where it stands in the plan, for errors.

    Raises:
        PlanError: It is none, or has more shards than any mesh has ranks.
    """
    return tuple(_placement(part, place) for part in text.split("|")) if text else ()


def _placement(text: str, place: str) -> Placement:
    if text in _WITHOUT_SIZES:
        return _WITHOUT_SIZES[text]
    if match := _SHARD.fullmatch(text):
        dim, sizes = match.groups()
        return Shard(int(dim), _sizes(sizes, place) if sizes else None)
    raise PlanError(f"{place}: expected a placement such as R, P or S0(8*4,6); found {text[:_MAX_SHOWN]!r}")


def _sizes(text: str, place: str) -> tuple[int, ...]:
    runs = [(int(size), int(count or 1)) for size, _, count in (run.partition("*") for run in text.split(","))]
    if (num_shards := sum(count for _, count in runs)) > _MAX_SHARDS:
        raise PlanError(f"{place}: expected at most {_MAX_SHARDS} shards; found {num_shards}")
    return tuple(size for size, count in runs for _ in range(count))
