"""``python -m benchmarks.papers NAME``: what papers on planners published, and what comes out here."""

import importlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.status import Status
from rich.table import Table as Grid

if TYPE_CHECKING:
    from benchmarks.papers.study import Study
    from benchmarks.papers.table import Table

app = typer.Typer(add_completion=False)
_console = Console(highlight=False)
_errors = Console(stderr=True, highlight=False)


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="Which system: hap, hidup, tag ...; or all.")],
    quick: Annotated[bool, typer.Option("--quick", help="Only what takes less than a minute.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A folder for the tables as JSON, which are written row by row.")
    ] = None,
) -> None:
    """Prints each figure and table of a paper: published, ours, and how they relate. The last line is JSON.

    What fails is a row of its table that says so, or is named in the last line; the exit status is 1 then.
    """
    from benchmarks.papers import REPRODUCIBLE

    if name != "all" and name not in REPRODUCIBLE:
        raise typer.BadParameter(f"there is no {name}; there are {', '.join(REPRODUCIBLE)}, and all", param_hint="NAME")
    if output:
        output.mkdir(parents=True, exist_ok=True)
    begun_s, systems = time.perf_counter(), dict[str, dict[str, Any]]()
    for each in REPRODUCIBLE if name == "all" else (name,):
        try:
            table = _computed(each, quick, output)
        except Exception as error:  # the other systems can be reproduced
            systems[each] = {"error": f"{type(error).__name__}: {error}"}
            _errors.print(f"{each}: {systems[each]['error']}", markup=False)
            continue
        _print(table)
        systems[each] = {"took_s": round(table.took_s, 1)} | _counts(table)
    failed = [each for each, outcome in systems.items() if "error" in outcome or "failed" in outcome]
    print(json.dumps({"took_s": round(time.perf_counter() - begun_s, 1), "failed": failed, "systems": systems}))
    if failed:
        raise typer.Exit(1)


def _computed(name: str, quick: bool, output: Path | None) -> "Table":
    from benchmarks.papers import REPRODUCIBLE
    from dyorc.planner.whole_file import write_whole

    path = output / f"{name}.json" if output else None
    with _errors.status(name) as status:
        shown = _Shown(name, status, _seconds_before(path, quick))
        study: Study = importlib.import_module(REPRODUCIBLE[name]).reproduce(quick=quick, progress=shown.doing)
        last: Table | None = None
        for table in study.tables():
            if path and table.rows:
                write_whole(path, table.to_json() + "\n")
            shown.so_far(table)
            last = table
    assert last
    return last


def _seconds_before(path: Path | None, quick: bool) -> Mapping[str, float]:
    """How long each part took when the table was computed last, whatever its rows were then."""
    if path is None or not path.exists():
        return {}
    before = json.loads(path.read_text())
    return before.get("part_s", {}) if before.get("is_quick") == quick else {}


class _Shown:
    """What is being done, how far it is, and about how long the rest takes; a line for each part where there is no terminal."""

    def __init__(self, name: str, status: Status, before_s: Mapping[str, float]) -> None:
        self._name, self._status, self._before_s = name, status, before_s
        self._far, self._num_done = "", 0

    def doing(self, text: str) -> None:
        self._status.update(f"{self._name}{self._far}: {text}")

    def so_far(self, table: "Table") -> None:
        from benchmarks.papers.study import seconds_left

        num_done, num_parts = len(table.part_s), len(table.part_s) + len(table.missing)
        left_s = seconds_left([*table.part_s, *table.missing], table.part_s, self._before_s)
        left = "" if left_s is None or not table.missing else f", about {left_s / 60:.0f} min left"
        self._far = f", {num_done} of {num_parts}{left}"
        if table.missing:
            self.doing(table.missing[0])
        if num_done > self._num_done:
            self._num_done = num_done
            if not _errors.is_terminal:
                done = list(table.part_s)[-1]
                _errors.print(f"{self._name}{self._far}: {done} took {table.part_s[done]:.1f} s", markup=False, soft_wrap=True)


def _print(table: "Table") -> None:
    from benchmarks.papers.markdown import counts_of, verdict_of

    grid = Grid("", "", "published", "here", "", "band", "", title=f"{table.title}, {table.took_s:.0f} s")
    for row in table.rows:
        grid.add_row(row.figure, row.what, row.published, row.ours, verdict_of(row), row.band, row.note)
    _console.print(grid)
    _console.print(f"{len(table.rows)} rows: {counts_of(table)}.", markup=False)
    if table.left_out:
        _console.print(f"Left out, as this is quick: {', '.join(table.left_out)}.", markup=False)


def _counts(table: "Table") -> dict[str, Any]:
    """Of published figures by relation; of the other kinds how many agree, and how many do not."""
    from benchmarks.papers.table import COMPARED, Kind, Relation

    counts: dict[str, Any] = {relation.value: num for relation in Relation if (num := table.count(relation, Kind.PUBLISHED))}
    for kind in (Kind.FITTED, Kind.OWN):
        if table.num_compared(kind):
            counts[kind.value] = {each.value: num for each in COMPARED if (num := table.count(each, kind))}
    return counts | ({"left out": list(table.left_out)} if table.left_out else {})


if __name__ == "__main__":
    app()
