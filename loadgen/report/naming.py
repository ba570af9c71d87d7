"""How a measurement is named and drawn on a page."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from loadgen.report.svg import NUM_COLOURS
from loadgen.results import RunResult
from loadgen.tables import rate_text


@dataclass(frozen=True, slots=True)
class NamedResult:
    """A measurement with its unique name and the number of its colour."""

    name: str
    style: int
    result: RunResult


def name_results(results: Sequence[RunResult]) -> list[NamedResult]:
    """Names each measurement by its label; by label and rate if several share the label; and by a number too if they share
    both."""
    names = [result.label for result in results]
    names = _with_suffixes(names, [rate_text(result) for result in results])
    while len(set(names)) < len(names):
        seen: Counter[str] = Counter()
        numbers: list[str] = []
        for name in names:
            seen[name] += 1
            numbers.append(f"no. {seen[name]}")
        names = _with_suffixes(names, numbers)
    return [NamedResult(name, style, result) for name, style, result in zip(names, _styles(results), results, strict=True)]


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


def _with_suffixes(names: Sequence[str], more: Sequence[str]) -> list[str]:
    often = Counter(names)
    return [f"{name}, {addition}" if often[name] > 1 else name for name, addition in zip(names, more, strict=True)]
