"""A paper's table in the making: its parts are computed one after another, and one that fails takes no other with it."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.papers.table import COMPARED, Line, Relation, Row, Table
from benchmarks.papers.trends import trends

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What a paper's module computes.

    Attributes:
        name: By which `python -m benchmarks.papers` finds it.
        title: The system, with where it was published.
        about: How the figures are found, in one or two sentences.
        parts: By what they are called, in the order in which they are computed; nothing is before it is iterated. They yield
            rows, and lines of the table's chart; or nothing, if others use what they find.
        is_quick: Whether this is the quick form.
        left_out: What the full form computes besides, if this is the quick one.
    """

    name: str
    title: str
    about: str
    parts: Mapping[str, Iterable[Row | Line]]
    is_quick: bool = False
    left_out: tuple[str, ...] = ()

    def tables(self) -> Iterator[Table]:
        """Yields the table so far: without a row, then after each row and each part; the last one is whole, with the trends.

        A part that fails ends with a row that says so. What interrupts the program interrupts this, too.
        """
        begun_s = time.perf_counter()
        rows: list[Row | Line] = []
        part_s: dict[str, float] = {}
        yield self._table(rows, part_s, 0.0)
        for name, part in self.parts.items():
            part_begun_s = time.perf_counter()
            for each in _until_failure(name, part):
                rows.append(each)
                yield self._table(rows, part_s, time.perf_counter() - begun_s)
            part_s[name] = time.perf_counter() - part_begun_s
            yield self._table(rows, part_s, time.perf_counter() - begun_s)
        rows += list(trends([each for each in rows if isinstance(each, Row)]))
        yield self._table(rows, part_s, time.perf_counter() - begun_s)

    def table(self) -> Table:
        """Computes all parts."""
        return list(self.tables())[-1]

    def _table(self, rows: Sequence[Row | Line], part_s: Mapping[str, float], took_s: float) -> Table:
        return Table(
            name=self.name,
            title=self.title,
            about=self.about,
            rows=tuple(each for each in rows if isinstance(each, Row)),
            lines=tuple(each for each in rows if isinstance(each, Line)),
            took_s=took_s,
            is_quick=self.is_quick,
            left_out=self.left_out,
            part_s=dict(part_s),
            missing=tuple(name for name in self.parts if name not in part_s),
        )


def _until_failure(name: str, part: Iterable[Row | Line]) -> Iterator[Row | Line]:
    try:
        yield from part
    except Exception as error:  # in any case, the other parts can be computed
        note = f"{type(error).__name__}: {error}"
        yield Row(figure=name, what="the rest of this part", published="", ours="", relation=Relation.FAILED, note=note)


def unjudged(part: Iterable[Row | Line], size: str) -> Iterator[Row | Line]:
    """Yields the rows of a quick run's part without a verdict: at another size, it would contradict the full run's.

    Args:
        part: Computed at another size than in the full run.
        size: What the full run computes it with.
    """
    for row in part:
        if isinstance(row, Row) and row.relation in COMPARED:
            note = f"the full run judges, with {size}" + (f"; {row.note}" if row.note else "")
            yield replace(row, relation=Relation.NOT_JUDGED, note=note)
        else:
            yield row


def kept(part: Iterable[Row], rows: list[Row]) -> Iterator[Row]:
    """Yields a part's rows, and adds them to `rows`, for another part to use."""
    for row in part:
        rows.append(row)
        yield row


def seconds_left(parts: Iterable[str], done_s: Mapping[str, float], before_s: Mapping[str, float]) -> float | None:
    """Estimates how long the parts take that are not done.

    Args:
        parts: All of them.
        done_s: How long those took that are.
        before_s: How long they took in an earlier run; empty if there was none.

    Returns:
        None if nothing is known yet.
    """
    known = [name for name in done_s if before_s.get(name)]
    pace = sum(done_s[name] for name in known) / sum(before_s[name] for name in known) if known else 1.0
    typical_s = sum(done_s.values()) / len(done_s) if done_s else None
    left_s = 0.0
    for name in parts:
        if name in done_s:
            continue
        each_s = before_s[name] * pace if name in before_s else typical_s
        if each_s is None:
            return None
        left_s += each_s
    return left_s
