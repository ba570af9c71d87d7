"""Rows by what they compare: numbers, ratios, facts, sides, bounds; and rows that compare nothing."""

from collections.abc import Sequence

from benchmarks.papers.bands import CLOSE, SIGN, Band
from benchmarks.papers.table import Kind, Point, Relation, Row, equal_as


def ratio_row(
    figure: str,
    what: str,
    published: float,
    ours: float,
    *,
    band: Band = CLOSE,
    kind: Kind = Kind.PUBLISHED,
    neutral: float = 1.0,
    note: str = "",
    point: Point | None = None,
) -> Row:
    """Compares two numbers that say which side is better.

    Args:
        figure: The figure or table of the paper.
        what: What is compared.
        published: The published number.
        ours: Ours.
        band: Within what they count as equal; and as far from 1, no side is better.
        kind: Where the published number comes from.
        neutral: At which neither side is better: 1 of ratios, 0 of differences.
        note: Why, or how ours was found.
        point: Where the row lies in a series.
    """
    width = band.ratio if neutral else 0.0
    if band.holds(published, ours):
        relation = equal_as(kind)
    elif _side(ours, neutral, width) == _side(published, neutral, width):
        relation = Relation.SAME_SIGN
    else:
        relation = Relation.DIFFERS
    return Row(
        figure=figure,
        what=what,
        published=f"{published:.3g}",
        ours=f"{ours:.3g}",
        relation=relation,
        band=band.text,
        kind=kind,
        note=_with_error(published, ours, note),
        point=point,
    )


def _with_error(published: float, ours: float, note: str) -> str:
    error = f"{ours / published - 1.0:+.0%}"
    return f"{error}; {note}" if note else error


def number_row(
    figure: str,
    what: str,
    published: float,
    ours: float,
    *,
    band: Band = CLOSE,
    kind: Kind = Kind.PUBLISHED,
    note: str = "",
    point: Point | None = None,
) -> Row:
    """Compares two numbers that say nothing of which side is better: within the band, or not.

    Args:
        figure: The figure or table of the paper.
        what: What is compared, with its unit.
        published: The published number.
        ours: Ours.
        band: Within what they count as equal.
        kind: Where the published number comes from.
        note: Why, or how ours was found.
        point: Where the row lies in a series.
    """
    return fact_row(
        figure,
        what,
        f"{published:.3g}",
        f"{ours:.3g}",
        is_so=band.holds(published, ours),
        band=band,
        kind=kind,
        note=_with_error(published, ours, note),
        point=point,
    )


def fact_row(
    figure: str,
    what: str,
    published: str,
    ours: str,
    *,
    is_so: bool,
    band: Band,
    kind: Kind = Kind.PUBLISHED,
    note: str = "",
    point: Point | None = None,
) -> Row:
    """Says whether ours is within the band, which the caller has found out."""
    relation = equal_as(kind) if is_so else Relation.DIFFERS
    return Row(
        figure=figure,
        what=what,
        published=published,
        ours=ours,
        relation=relation,
        band=band.text,
        kind=kind,
        note=note,
        point=point,
    )


def sign_row(
    figure: str, what: str, published: str, ours: str, *, is_so: bool, note: str = "", point: Point | None = None
) -> Row:
    """Says whether the same side wins, where no more is published or can be compared."""
    relation = Relation.SAME_SIGN if is_so else Relation.DIFFERS
    return Row(
        figure=figure, what=what, published=published, ours=ours, relation=relation, band=SIGN.text, note=note, point=point
    )


def own_row(figure: str, what: str, ours: str, note: str = "") -> Row:
    """What was measured besides."""
    return Row(figure=figure, what=what, published="", ours=ours, relation=Relation.OURS_ALONE, note=note)


def not_here_row(figure: str, what: str, published: str, note: str) -> Row:
    """What cannot be checked without the authors' hardware, data or code."""
    return Row(figure=figure, what=what, published=published, ours="", relation=Relation.NOT_HERE, note=note)


def points_of(series: str, xs: Sequence[float]) -> dict[float, Point]:
    """Returns the point of each place in a series."""
    return {x: Point(series=series, x=x, num_points=len(xs)) for x in xs}


def _side(number: float, neutral: float, width: float) -> int:
    return 0 if abs(number - neutral) <= width else 1 if number > neutral else -1
