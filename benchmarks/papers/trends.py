"""Trends: series of rows over the same points, published and ours. Points within their bands may still run the wrong way."""

import re
from collections.abc import Iterator, Sequence
from math import sqrt

from benchmarks.papers.bands import TREND, TrendBand
from benchmarks.papers.table import Kind, Relation, Row, equal_as

_NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?")
_FEWEST = 2
_DIRECTIONS = {-1: "falls", 0: "is flat", 1: "rises"}


def trends(rows: Sequence[Row], band: TrendBand = TREND) -> Iterator[Row]:
    """Yields a row for each series whose points are all among the rows.

    A series is published where one of its points is. Its trend is equal if it runs the same way, in the same order and about as
    far; of the same sign if it runs the same way by another amount; and it differs otherwise, whatever its points do.
    """
    series: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.point is not None and row.relation is not Relation.NOT_JUDGED:
            series.setdefault((row.figure, row.point.series), []).append(row)
    for (figure, name), points in series.items():
        if points[0].point is not None and len(points) == points[0].point.num_points >= _FEWEST:
            yield _trend_row(figure, name, points, band)


def _trend_row(figure: str, name: str, points: Sequence[Row], band: TrendBand) -> Row:
    published, ours = (
        [_number_in(text) for text in texts] for texts in zip(*((p.published, p.ours) for p in points), strict=True)
    )
    kinds = [point.kind for point in points]
    kind = Kind.PUBLISHED if Kind.PUBLISHED in kinds else kinds[0]
    correlation = rank_correlation(published, ours)
    return Row(
        figure=figure,
        what=f"trend of {name}: {', '.join(f'{p.point.x:g}' for p in points if p.point is not None)}",
        published=_shown(published),
        ours=_shown(ours),
        relation=trend_relation(published, ours, kind, band),
        band=band.text,
        kind=kind,
        note=f"theirs {_DIRECTIONS[_direction(published, band)]}, ours {_DIRECTIONS[_direction(ours, band)]}"
        + ("" if correlation is None else f"; rank correlation {correlation:.2f}"),
    )


def trend_relation(published: Sequence[float], ours: Sequence[float], kind: Kind, band: TrendBand = TREND) -> Relation:
    """Compares two series of positive numbers over the same points."""
    if _direction(published, band) != _direction(ours, band):
        return Relation.DIFFERS
    correlation = rank_correlation(published, ours)
    are_flat = all(max(each) <= min(each) * (1.0 + band.flat_ratio) for each in (published, ours))
    if not are_flat and (correlation is None or correlation < band.rank_correlation):
        return Relation.DIFFERS
    growths = [each[-1] / each[0] for each in (published, ours)]
    return equal_as(kind) if abs(growths[1] / growths[0] - 1.0) <= band.growth_ratio else Relation.SAME_SIGN


def rank_correlation(numbers: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's coefficient, equal values at their mean rank; None if one of the series does not change at all."""
    ranks = [_ranks(each) for each in (numbers, other)]
    middle = (len(numbers) - 1) / 2
    spreads = [sum((rank - middle) ** 2 for rank in each) for each in ranks]
    if not all(spreads):
        return None
    return sum((a - middle) * (b - middle) for a, b in zip(*ranks, strict=True)) / sqrt(spreads[0] * spreads[1])


def _ranks(values: Sequence[float]) -> list[float]:
    return [sum(other < value for other in values) + (values.count(value) - 1) / 2 for value in values]


def _direction(values: Sequence[float], band: TrendBand) -> int:
    change = values[-1] / values[0] - 1.0
    return 0 if abs(change) <= band.flat_ratio else 1 if change > 0 else -1


def _number_in(text: str) -> float:
    match = _NUMBER.search(text)
    if match is None:
        raise ValueError(f"a point of a trend needs a number, not {text!r}")
    return float(match[0].replace(",", ""))


def _shown(values: Sequence[float]) -> str:
    return f"{', '.join(f'{value:.3g}' for value in values)} (x {values[-1] / values[0]:.2f})"
