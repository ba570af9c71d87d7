"""What a paper published, what comes out here, and how the two relate, row by row."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum


class Relation(StrEnum):
    """How our figure relates to the published one."""

    EQUAL = "equal"  # within the tolerance that the row states, or the same fact
    SAME_SIGN = "same sign"  # the same side wins, by another amount
    DIFFERS = "differs"
    NOT_HERE = "not reproducible here"
    OURS_ALONE = "ours alone"  # nothing is published to compare it with
    FAILED = "failed"  # it could not be computed this time; the note says why


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row.

    Attributes:
        figure: The figure or table of the paper.
        what: What is compared.
        published: The published figure, with its unit.
        ours: What came out here.
        relation: How they relate.
        note: Why, or how ours was found.
    """

    figure: str
    what: str
    published: str
    ours: str
    relation: Relation
    note: str = ""


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
        name: By which `dyorc reproduce` finds it.
        title: The system, with where it was published.
        about: How the figures were found, in one or two sentences.
        rows: In the order of the paper's figures.
        took_s: How long it took to find them.
        is_quick: Whether this is the quick form.
        part_s: How long each part of the table took that was computed.
        missing: The parts that were not, because the run was interrupted.
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
    lines: tuple[Line, ...] = ()

    def count(self, relation: Relation) -> int:
        """How many rows have this relation."""
        return sum(row.relation is relation for row in self.rows)

    def to_json(self) -> str:
        """The table as one line of JSON."""
        return json.dumps(asdict(self))


def table_from_json(text: str) -> Table:
    """Reads what `Table.to_json` wrote."""
    found = json.loads(text)
    rows = tuple(Row(**{**row, "relation": Relation(row["relation"])}) for row in found.pop("rows"))
    points = ("xs", "means", "lows", "highs")
    lines = tuple(Line(**(line | {name: tuple(line[name]) for name in points})) for line in found.pop("lines", ()))
    return Table(rows=rows, missing=tuple(found.pop("missing", ())), lines=lines, **found)


def ratio_row(figure: str, what: str, published: float, ours: float, *, tolerance: float = 0.05, note: str = "") -> Row:
    """Compares two ratios of which 1 means that neither side is better.

    Args:
        figure: The figure or table of the paper.
        what: What is compared.
        published: The published ratio.
        ours: Ours.
        tolerance: The relative error up to which they count as equal, and the distance from 1 up to which no side is better.
        note: Why, or how ours was found.
    """
    error = ours / published - 1.0
    if abs(error) <= tolerance:
        relation = Relation.EQUAL
    elif _side(ours, tolerance) == _side(published, tolerance):
        relation = Relation.SAME_SIGN
    else:
        relation = Relation.DIFFERS
    error_text = f"{error:+.0%}"
    return Row(
        figure=figure,
        what=what,
        published=f"{published:.3g}",
        ours=f"{ours:.3g}",
        relation=relation,
        note=f"{error_text}; {note}" if note else error_text,
    )


def number_row(figure: str, what: str, published: float, ours: float, *, tolerance: float = 0.05, note: str = "") -> Row:
    """Compares two numbers that say nothing of which side is better: equal within a relative error, or not.

    Args:
        figure: The figure or table of the paper.
        what: What is compared, with its unit.
        published: The published number.
        ours: Ours.
        tolerance: The relative error up to which they count as equal.
        note: Why, or how ours was found.
    """
    row = ratio_row(figure, what, published, ours, tolerance=tolerance, note=note)
    return row if row.relation is Relation.EQUAL else replace(row, relation=Relation.DIFFERS)


def _side(ratio: float, tolerance: float) -> int:
    return 0 if abs(ratio - 1.0) <= tolerance else 1 if ratio > 1.0 else -1


def to_markdown(tables: Sequence[Table], pictures: Mapping[str, str] | None = None) -> str:
    """Returns the tables as a page's sections.

    Args:
        tables: In the order of the sections.
        pictures: Where the page finds the picture of each table that has one, by the table's name.
    """
    parts: list[str] = []
    for table in tables:
        parts += [f"### {table.title}", "", table.about, "", _found(table), ""]
        if picture := (pictures or {}).get(table.name):
            parts += [f"![{_shown(table)}]({picture})", ""]
        parts += ["| | what | published | here | | how, or why |", "|---|---|--:|--:|---|---|"]
        for row in table.rows:
            cells = (row.figure, row.what, row.published, row.ours, row.relation, row.note)
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append("")
    return "\n".join(parts)


def _shown(table: Table) -> str:
    """What the table's picture shows."""
    if not table.lines:
        return "Published beside here, for each row with two numbers"
    panels = dict.fromkeys(line.panel for line in table.lines)
    return f"{table.lines[0].height} over {' and '.join(panels)}".capitalize()


def _found(table: Table) -> str:
    """What the table's command is, and how its rows end."""
    quick = " --quick" if table.is_quick else ""
    counts = ", ".join(f"{num} {relation}" for relation in Relation if (num := table.count(relation)))
    text = f"`dyorc reproduce {table.name}{quick}`, {table.took_s:.0f} s. {len(table.rows)} rows: {counts}."
    return f"{text} The run was interrupted; missing: {', '.join(table.missing)}." if table.missing else text
