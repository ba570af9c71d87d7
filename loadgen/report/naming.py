"""What a measurement is called on a page, and how it is drawn."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from loadgen.report.svg import NUM_COLOURS
from loadgen.results import RunResult
from loadgen.tables import rate_text


@dataclass(frozen=True, slots=True)
class Named:
    """A measurement with its name, which is no other's, and the number of its colour."""

    name: str
    style: int
    result: RunResult


def named(results: Sequence[RunResult]) -> list[Named]:
    """The label is the name; if several have it, with the rate; if that is the same too, with a number."""
    names = [result.label for result in results]
    names = _told_apart(names, [rate_text(result) for result in results])
    while len(set(names)) < len(names):
        seen: Counter[str] = Counter()
        numbers: list[str] = []
        for name in names:
            seen[name] += 1
            numbers.append(f"no. {seen[name]}")
        names = _told_apart(names, numbers)
    return [Named(name, style, result) for name, style, result in zip(names, _styles(results), results, strict=True)]


def _styles(results: Sequence[RunResult]) -> list[int]:
    """A colour for each label, and shapes and dashes for each of its results; with one label only, a colour for each result."""
    labels = list(dict.fromkeys(result.label for result in results))
    if len(labels) == 1:
        return list(range(len(results)))
    seen: Counter[str] = Counter()
    styles: list[int] = []
    for result in results:
        styles.append(labels.index(result.label) % NUM_COLOURS + NUM_COLOURS * seen[result.label])
        seen[result.label] += 1
    return styles


def _told_apart(names: Sequence[str], more: Sequence[str]) -> list[str]:
    often = Counter(names)
    return [f"{name}, {addition}" if often[name] > 1 else name for name, addition in zip(names, more, strict=True)]
