"""How a measurement is named and drawn on a page."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from loadgen.report.svg import NUM_COLOURS
from loadgen.results import RunResult
from loadgen.tables import rate_text


@dataclass(frozen=True, slots=True)
class NamedResult:
    """A measurement with its unique name and the number of its colour.

    Attributes:
        name_beside_rate: Its name in a table that has a column for the rate: unique among those of the same rate.
    """

    name: str
    name_beside_rate: str
    style: int
    result: RunResult


def name_results(results: Sequence[RunResult]) -> list[NamedResult]:
    """Names each measurement by its label; by label and rate if several share the label; and by a number too if they share
    both."""
    labels, rates = [result.label for result in results], [rate_text(result) for result in results]
    names = _with_numbers(_with_suffixes(labels, labels, rates), [""] * len(results))
    return [
        NamedResult(name, name_beside_rate, style, result)
        for name, name_beside_rate, style, result in zip(
            names, _with_numbers(labels, rates), _styles(results), results, strict=True
        )
    ]


def _with_numbers(names: Sequence[str], rates: Sequence[str]) -> Sequence[str]:
    """Adds numbers to names until each is unique among those of its rate."""
    while len(keys := set(zip(names, rates, strict=True))) < len(names):
        seen = dict.fromkeys(keys, 0)
        numbers: list[str] = []
        for key in zip(names, rates, strict=True):
            seen[key] += 1
            numbers.append(f"no. {seen[key]}")
        names = _with_suffixes(names, list(zip(names, rates, strict=True)), numbers)
    return names


def _styles(results: Sequence[RunResult]) -> list[int]:
    """Gives each label a colour, and each of its results a shape and dashes. With a single label, gives each result a colour."""
    labels = list(dict.fromkeys(result.label for result in results))
    if len(labels) == 1:
        return list(range(len(results)))
    seen: Counter[str] = Counter()
    styles: list[int] = []
    for result in results:
        styles.append(labels.index(result.label) % NUM_COLOURS + NUM_COLOURS * seen[result.label])
        seen[result.label] += 1
    return styles


def _with_suffixes(names: Sequence[str], keys: Sequence[Hashable], suffixes: Sequence[str]) -> list[str]:
    """Adds suffixes to the names whose keys are not unique."""
    num_of = Counter(keys)
    return [f"{name}, {suffix}" if num_of[key] > 1 else name for name, key, suffix in zip(names, keys, suffixes, strict=True)]
