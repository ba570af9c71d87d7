"""Calls and decisions that a request repeats, as in a loop: `dyorc explain` shows them as one row."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

MAX_ALIKE = 8
"""More calls of one program by one workflow, or decisions at one place, are one row."""


def group_alike(items: Sequence[Json], *names: str, max_alike: int = MAX_ALIKE) -> list[list[Json]]:
    """Returns items in groups, in the order of their first ones: those that agree in the fields `names` together, if there are
    more than `max_alike` of them, all others alone."""
    numbers = Counter(_fields(item, names) for item in items)
    groups: list[list[Json]] = []
    begun: dict[tuple[Any, ...], list[Json]] = {}
    for item in items:
        key = _fields(item, names)
        if numbers[key] > max_alike and key in begun:
            begun[key].append(item)
        else:
            begun[key] = [item]
            groups.append(begun[key])
    return groups


def call_notes(calls: Sequence[Json], duration_ms: float) -> list[str]:
    """Returns what is worth saying of a group of calls."""
    took_ms = [(duration_ms if call["ended_ms"] is None else call["ended_ms"]) - call["asked_ms"] for call in calls]
    notes = [f"{sum(took_ms) / len(calls):.1f} ms each, at most {max(took_ms):.1f}"]
    num_guesses = sum(call["is_guess"] for call in calls)
    num_wrong = sum(call["outcome"] == "squashed" for call in calls)
    if num_guesses:
        notes.append(f"{num_guesses} guesses made, {num_wrong} wrong")
    for count, text in (
        (sum(call["was_cold"] for call in calls), "cold"),
        (sum(call["is_repeat"] for call in calls), "again, their results were lost"),
        (sum(len(call["batches"]) > 1 for call in calls), "tried more than once"),
    ):
        if count:
            notes.append(f"{count} {text}")
    others = Counter(call["outcome"] for call in calls if call["outcome"] not in ("done", "squashed"))
    return notes + [f"{number} {outcome}" for outcome, number in others.items()]


def describe_decisions(decisions: Sequence[Json]) -> str:
    """Returns what became of decisions at one place."""
    outcomes = Counter(decision["outcome"] or "open to the end" for decision in decisions)
    text = f"decision at {decisions[0]['site']} x {len(decisions)}: "
    text += ", ".join(f"{outcome} x {number}" for outcome, number in outcomes.items())
    guessed = [decision for decision in decisions if decision["followed"]]
    if guessed:
        num_right = sum(decision["outcome"] in decision["followed"] for decision in guessed)
        gain_ms = sum(sum(decision["gains_ms"].values()) for decision in guessed)
        gained = f"{'saved' if gain_ms >= 0 else 'cost others'} {abs(gain_ms):.1f} ms"
        text += f"; guessed {len(guessed)}, {num_right} of them right, {gained}"
    return text


def _fields(item: Json, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(item.get(name) for name in names)
