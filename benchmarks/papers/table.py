"""What a paper published, what comes out here, and how the two relate, row by row."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self


class Kind(StrEnum):
    """Where the figure comes from that ours is compared with."""

    PUBLISHED = "published"  # printed in the paper, digitised from it, or published with it
    FITTED = "fitted"  # published, but our costs are calibrated on this very figure
    OWN = "own reference"  # computed here: a formula, our simulator, or a plain computation


class Relation(StrEnum):
    """How our figure relates to the other one."""

    EQUAL = "equal"  # within the band around a published figure
    AGREES = "agrees"  # within the band around a figure that is fitted, or our own
    SAME_SIGN = "same sign"  # the same side wins, by another amount
    DIFFERS = "differs"
    NOT_HERE = "not reproducible here"
    OURS_ALONE = "ours alone"  # nothing is published to compare it with
    NOT_JUDGED = "not judged"  # a quick run computed it at another size than the full run, which judges
    FAILED = "failed"  # it could not be computed this time; the note says why


COMPARED = (Relation.EQUAL, Relation.AGREES, Relation.SAME_SIGN, Relation.DIFFERS)


def equal_as(kind: Kind) -> Relation:
    """What a figure within its band is called: only a published one can be equal."""
    return Relation.EQUAL if kind is Kind.PUBLISHED else Relation.AGREES


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Where a row lies in a series whose trend is compared, too.

    Attributes:
        series: What the series is of.
        x: What runs along it.
        num_points: How many points the whole series has.
    """

    series: str
    x: float
    num_points: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row.

    Attributes:
        figure: The figure or table of the paper.
        what: What is compared.
        published: The published figure, with its unit.
        ours: What came out here.
        relation: How they relate.
        band: Within what ours counts as equal; of every row that compares.
        kind: Where the published figure comes from.
        note: Why, or how ours was found.
        point: Where it lies in a series.

    Raises:
        ValueError: The row compares and states no band, or calls equal what is not published.
    """

    figure: str
    what: str
    published: str
    ours: str
    relation: Relation
    band: str = ""
    kind: Kind = Kind.PUBLISHED
    note: str = ""
    point: Point | None = None

    def __post_init__(self) -> None:
        if self.relation in COMPARED and not self.band:
            raise ValueError(f"{self.figure}, {self.what}: a row that compares states its band")
        if self.relation in (Relation.EQUAL, Relation.AGREES) and self.relation is not equal_as(self.kind):
            raise ValueError(f"{self.figure}, {self.what}: a figure that is {self.kind} is not {self.relation}")

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """Reads a row of a table's JSON."""
        point = row.get("point")
        kinds: dict[str, Any] = {"relation": Relation(row["relation"]), "kind": Kind(row["kind"])}
        kinds["point"] = Point(**point) if point else None
        return cls(**{**row, **kinds})


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a table's chart: the mean of several runs, and how far they are apart.

    Attributes:
        panel: The chart, by what runs along its horizontal axis.
        height: What its vertical axis shows.
        what: What the line is of.
        xs: Where its points are, from left to right.
        means: How high each is, in the mean of the runs.
        lows: Of each point, the lowest run's.
        highs: Of each point, the highest run's.
    """

    panel: str
    height: str
    what: str
    xs: tuple[float, ...]
    means: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """All rows of one paper.

    Attributes:
        name: By which `python -m benchmarks.papers` finds it.
        title: The system, with where it was published.
        about: How the figures were found, in one or two sentences.
        rows: In the order of the paper's figures.
        took_s: How long it took to find them.
        is_quick: Whether this is the quick form.
        part_s: How long each part of the table took that was computed.
        missing: The parts that were not, because the run was interrupted.
        left_out: What the full run computes besides, if this is the quick form.
        runs: Where rows of several runs were put together: the run of each row.
        lines: Of its chart, if it has one.
    """

    name: str
    title: str
    about: str
    rows: tuple[Row, ...]
    took_s: float
    is_quick: bool = False
    part_s: Mapping[str, float] = field(default_factory=dict[str, float])
    missing: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    runs: str = ""
    lines: tuple[Line, ...] = ()

    def count(self, relation: Relation, kind: Kind | None = None) -> int:
        """How many rows have this relation, of one kind or of all."""
        return sum(row.relation is relation and kind in (None, row.kind) for row in self.rows)

    def num_compared(self, kind: Kind) -> int:
        """How many rows compare with a figure of this kind."""
        return sum(self.count(relation, kind) for relation in COMPARED)

    def to_json(self) -> str:
        """The table as one line of JSON."""
        return json.dumps(asdict(self))


def table_from_json(text: str) -> Table:
    """Reads what `Table.to_json` wrote."""
    content = json.loads(text)
    rows = tuple(Row.from_json(row) for row in content.pop("rows"))
    points = ("xs", "means", "lows", "highs")
    lines = tuple(Line(**(line | {name: tuple(line[name]) for name in points})) for line in content.pop("lines", ()))
    names = {name: tuple(content.pop(name, ())) for name in ("missing", "left_out")}
    return Table(rows=rows, lines=lines, **names, **content)
