"""Adds up what several processes of one server report about themselves."""

from collections.abc import Sequence
from typing import Any

from dyorc.models.status import BEST_FIRST

_OF_ALL = frozenset({"num_bytes", "max_bytes", "max_bytes_per_tenant", "num_refused_inputs"})
"""Figures of what all processes share: the store, and the inputs that they refuse."""
_RANKS = {state.value: rank for rank, state in enumerate(BEST_FIRST)}


def added_up(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns one report for several of the same form: counts, sizes and times are summed, costs and ratios averaged.

    A program is in the best of its states. Of texts, the first counts.
    """
    names = dict.fromkeys(name for report in reports for name in report)
    return {name: _one(name, [report[name] for report in reports if name in report]) for name in names}


def _one(name: str, values: Sequence[Any]) -> Any:
    known = [value for value in values if value is not None]
    if not known:
        return None
    first = known[0]
    match first:
        case dict():
            return added_up(known)
        case bool():
            return any(known)
        case int() | float() if name in _OF_ALL:
            return max(known)
        case int() | float() if name.endswith(("_ms", "_ratio")):
            return sum(known) / len(known)
        case int() | float():
            return sum(known)
        case str() if name == "state":
            return min(known, key=_rank)
        case _:
            return first


def _rank(state: str) -> int:
    """Returns how good a state is; a replica may be in one that programs do not know, and is in one process only."""
    return _RANKS.get(state, len(_RANKS))
