"""Tables as sections of a page."""

from collections.abc import Mapping, Sequence

from benchmarks.papers.table import COMPARED, Kind, Relation, Row, Table


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
        parts += ["| | what | published | here | | band | how, or why |", "|---|---|--:|--:|---|---|---|"]
        for row in table.rows:
            cells = (row.figure, row.what, row.published, row.ours, verdict_of(row), row.band, row.note)
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append("")
    return "\n".join(parts)


def verdict_of(row: Row) -> str:
    """The row's relation, with its kind where the other figure is not simply published."""
    return str(row.relation) if row.kind is Kind.PUBLISHED else f"{row.kind}: {row.relation}"


def counts_of(table: Table) -> str:
    """How the table's rows end: published figures first, then fits and own references, which are never equal."""
    of_published = [(relation, table.count(relation, Kind.PUBLISHED)) for relation in COMPARED if relation is not Relation.AGREES]
    counts = [
        f"{table.num_compared(Kind.PUBLISHED)} compare with published figures"
        + "".join(f", {num} {relation}" for relation, num in of_published if num)
    ]
    for kind in (Kind.FITTED, Kind.OWN):
        if num := table.num_compared(kind):
            names = {Kind.FITTED: "with figures that our costs are fitted to", Kind.OWN: "with references of our own"}
            counts.append(f"{num} {names[kind]} ({table.count(Relation.AGREES, kind)} agree)")
    others = [relation for relation in Relation if relation not in COMPARED]
    counts += [f"{num} {relation}" for relation in others if (num := table.count(relation))]
    return "; ".join(counts)


def _shown(table: Table) -> str:
    """What the table's picture shows."""
    if not table.lines:
        return "Published beside here, for each row with two numbers"
    panels = dict.fromkeys(line.panel for line in table.lines)
    return f"{table.lines[0].height} over {' and '.join(panels)}".capitalize()


def _found(table: Table) -> str:
    """What the table's command is, how its rows end, and what it lacks."""
    quick = " --quick" if table.is_quick else ""
    text = f"`python -m benchmarks.papers {table.name}{quick}`, {table.took_s:.0f} s. {len(table.rows)} rows: {counts_of(table)}."
    if table.runs:
        text += f" {table.runs}"
    if table.left_out:
        text += f" Left out: {', '.join(table.left_out)}."
    return f"{text} The run was interrupted; missing: {', '.join(table.missing)}." if table.missing else text
