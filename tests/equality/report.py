"""Adds outcomes up by planner and model."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.table import Column, Table

from tests.equality.checking import TOLERANCE, Outcome


def table_of(outcomes: Sequence[Outcome]) -> Table:
    """How many plans are equal, of those there are, and the largest error."""
    models = list(dict.fromkeys(outcome.case.model for outcome in outcomes))
    columns = [Column(name, justify="right") for name in (*models, "uneven", "with empty", "largest error")]
    table = Table("planner", *columns, title="Plans that compute what one device computes, of those tried", box=None)
    for variant in dict.fromkeys(outcome.case.variant for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.case.variant == variant]
        cells = [_cell([outcome for outcome in mine if outcome.case.model == model]) for model in models]
        counts = _counts(mine)
        table.add_row(variant, *cells, str(counts["uneven"]), str(counts["with_empty"]), f"{counts['largest_error']:.1e}")
    return table


def _cell(outcomes: Sequence[Outcome]) -> str:
    there = [outcome for outcome in outcomes if not outcome.refused]
    return f"{sum(outcome.is_equal for outcome in there)}/{len(there)}" if there else ""


def _counts(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    there = [outcome for outcome in outcomes if not outcome.refused]
    return {
        "plans": len(there),
        "equal": sum(outcome.is_equal for outcome in there),
        "uneven": sum(outcome.is_uneven for outcome in there),
        "with_empty": sum(outcome.has_empty for outcome in there),
        "largest_error": max((outcome.error for outcome in there), default=0.0),
        "took_s": round(sum(outcome.took_s for outcome in outcomes), 1),
    }


def json_of(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The same for machines, with all that went wrong and why there are no plans."""
    planners = {
        variant: {
            **_counts([outcome for outcome in outcomes if outcome.case.variant == variant]),
            "models": {
                model: _cell([o for o in outcomes if o.case.variant == variant and o.case.model == model])
                for model in dict.fromkeys(outcome.case.model for outcome in outcomes)
            },
        }
        for variant in dict.fromkeys(outcome.case.variant for outcome in outcomes)
    }
    refused = Counter(f"{o.case.variant}, {o.case.model}: {o.refused}" for o in outcomes if o.refused)
    return {
        "check": "equality",
        "tolerance": TOLERANCE,
        **_counts(outcomes),
        "planners": planners,
        "wrong": {str(o.case): o.trouble or f"differs by {o.error:.3g}" for o in outcomes if not o.is_equal and not o.refused},
        "no_plan": dict(refused),
    }
