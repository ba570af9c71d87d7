"""Measures several targets in turns, so that changes on the machine affect all of them alike, and compares them."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

import msgspec

from loadgen.results import PartsResult, RunResult
from loadgen.tables import align_columns, milliseconds, percent

MeasureRound = Callable[[int], RunResult]
"""Measures one target, in the round with this number. The load and its seed are the same for all targets."""

_FIGURES: Mapping[str, Callable[[RunResult], float]] = {
    "p50_ms": lambda result: result.latency_ms.p50,
    "p90_ms": lambda result: result.latency_ms.p90,
    "p99_ms": lambda result: result.latency_ms.p99,
    "throughput_rps": lambda result: result.throughput_rps,
    "goodput_ratio": lambda result: result.goodput_ratio,
    "goodput_rps": lambda result: result.goodput_rps,
}
_PART_FIGURES: Mapping[str, Callable[[PartsResult], float]] = {
    "first_part_p50_ms": lambda parts: parts.first_part_ms.p50,
    "first_part_p99_ms": lambda parts: parts.first_part_ms.p99,
    "between_parts_p99_ms": lambda parts: parts.between_parts_ms.p99 if parts.between_parts_ms else 0.0,
    "parts_per_s": lambda parts: parts.parts_per_s,
}
_HEAD = ("", "p50 ms", "spread", "x", "p99 ms", "spread", "x", "req/s", "spread", "x", "goodput %", "spread", "errors", "wrong")


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of one target over all rounds.

    Attributes:
        spread: The largest value divided by the smallest, minus 1; None if the smallest is 0 and the largest is not.
        ratio: The median divided by that of the first target; None if that is 0.
    """

    median: float
    spread: float | None
    ratio: float | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of several targets.

    Attributes:
        figures: The figures by target, then by name.
        runs: All measurements, in their order.
    """

    schema: int = 1
    kind: str = "comparison"
    num_rounds: int
    figures: dict[str, dict[str, Figure]]
    runs: list[RunResult]


def compare(
    targets: Mapping[str, MeasureRound], *, num_rounds: int = 3, show: Callable[[RunResult], None] | None = None
) -> Comparison:
    """Measures each target once in each round: A B A B A B.

    Args:
        targets: The targets by label. The others are compared with the first.

    Raises:
        ValueError: If there are fewer than two targets, or no rounds.
    """
    if len(targets) < 2 or num_rounds < 1:
        raise ValueError(f"{len(targets)} targets in {num_rounds} rounds: expected at least two targets and one round")
    runs: dict[str, list[RunResult]] = {label: [] for label in targets}
    in_order: list[RunResult] = []
    for number in range(num_rounds):
        for label, measure in targets.items():
            result = measure(number)
            runs[label].append(result)
            in_order.append(result)
            if show is not None:
                show(result)
    return Comparison(num_rounds=num_rounds, figures=compare_figures(runs), runs=in_order)


def compare_figures(runs: Mapping[str, Sequence[RunResult]]) -> dict[str, dict[str, Figure]]:
    """Returns medians, spreads and ratios to the first target."""
    first = next(iter(runs))
    values = {label: _values(results) for label, results in runs.items()}
    bases = {name: median(numbers) for name, numbers in values[first].items()}
    return {
        label: {name: _figure(numbers, bases.get(name, 0.0)) for name, numbers in by_name.items()}
        for label, by_name in values.items()
    }


def _values(results: Sequence[RunResult]) -> dict[str, list[float]]:
    values = {name: list(map(value, results)) for name, value in _FIGURES.items()}
    parts = [result.parts for result in results if result.parts is not None]
    return values | ({name: list(map(value, parts)) for name, value in _PART_FIGURES.items()} if parts else {})


def spread(values: Sequence[float]) -> float | None:
    """Returns the largest value divided by the smallest, minus 1; None if the smallest is 0."""
    low, high = min(values), max(values)
    if low == high:
        return 0.0
    return high / low - 1 if low > 0 else None


def comparison_table(comparison: Comparison) -> str:
    """Returns a row for each target: medians, spreads over the rounds and ratios to the first; warnings below."""
    rows: list[Sequence[str]] = [_HEAD]
    for label, figures in comparison.figures.items():
        counts = [run.counts for run in comparison.runs if run.label == label]
        rows.append(
            (
                label,
                *_figure_texts(figures["p50_ms"], milliseconds),
                *_figure_texts(figures["p99_ms"], milliseconds),
                *_figure_texts(figures["throughput_rps"], "{:,.1f}".format),
                *_figure_texts(figures["goodput_ratio"], percent)[:2],
                str(sum(each.failed + each.unanswered for each in counts)),
                str(sum(each.wrong for each in counts)),
            )
        )
    lines = [align_columns(rows), *_part_table(comparison)]
    warned = dict.fromkeys(f"warning: {run.label}: {run.client_warning}" for run in comparison.runs if run.client_warning)
    return "\n".join([*lines, *warned])


def _part_table(comparison: Comparison) -> list[str]:
    """Returns a second table, if answers were streamed."""
    rows: list[Sequence[str]] = [("", *(part for name in _PART_FIGURES for part in (_named(name), "spread", "x")))]
    for label, figures in comparison.figures.items():
        if "parts_per_s" in figures:
            texts = (_figure_texts(figures[name], _form_of(name)) for name in _PART_FIGURES)
            rows.append((label, *(text for three in texts for text in three)))
    return [align_columns(rows)] if len(rows) > 1 else []


def _named(figure: str) -> str:
    return "parts/s" if figure == "parts_per_s" else figure.replace("_", " ")


def _form_of(figure: str) -> Callable[[float], str]:
    return milliseconds if figure.endswith("_ms") else "{:,.1f}".format


def _figure(values: Sequence[float], base: float) -> Figure:
    middle = median(values)
    return Figure(median=middle, spread=spread(values), ratio=middle / base if base else None)


def _figure_texts(figure: Figure, form: Callable[[float], str]) -> tuple[str, str, str]:
    varied = "-" if figure.spread is None else f"{100 * figure.spread:.0f} %"
    return form(figure.median), varied, "-" if figure.ratio is None else f"{figure.ratio:.2f}"
