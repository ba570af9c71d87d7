"""`python -m benchmarks.papers` loses no row that it has found, whatever fails beside it or interrupts it."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from benchmarks import papers
from benchmarks.papers.__main__ import app
from benchmarks.papers.rows import ratio_row
from benchmarks.papers.study import Study, seconds_left
from benchmarks.papers.table import Kind, Relation, Row, Table, table_from_json

_Parts = Callable[[], Mapping[str, Iterator[Row]]]


def _row(what: str) -> Iterator[Row]:
    yield ratio_row("figure 1", what, 2.0, 2.0)


def _row_and_failure() -> Iterator[Row]:
    yield from _row("before the failure")
    raise ValueError("no such | [figure]")


def _row_and_interruption() -> Iterator[Row]:
    yield from _row("before the interruption")
    raise KeyboardInterrupt


def _refused() -> Mapping[str, Iterator[Row]]:
    raise RuntimeError("no such library")


@pytest.fixture
def systems(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Takes the place of all systems."""

    def put(**parts: _Parts) -> None:
        for name, make in parts.items():

            def study(*, quick: bool, progress: object, name: str = name, make: _Parts = make) -> Study:
                return Study(name=name, title=name.upper(), about="How.", parts=make(), is_quick=quick)

            monkeypatch.setitem(sys.modules, f"systems_of_test.{name}", SimpleNamespace(reproduce=study))
        monkeypatch.setattr(papers, "REPRODUCIBLE", {name: f"systems_of_test.{name}" for name in parts})

    return put


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def _table(folder: Path, name: str) -> Table:
    return table_from_json((folder / f"{name}.json").read_text())


def test_all_goes_on_after_what_fails_and_says_so(systems: Callable[..., None], tmp_path: Path) -> None:
    systems(
        one=lambda: {"part": _row_and_failure(), "other": _row("of another part")},
        two=_refused,
        three=lambda: {"part": _row("alone")},
    )
    ran = _run("all", "--quick", "--output", tmp_path)
    assert ran.exit_code == 1, ran.output
    last = json.loads(ran.stdout.splitlines()[-1])
    assert last["failed"] == ["one", "two"]
    assert last["systems"]["two"] == {"error": "RuntimeError: no such library"}
    assert {key: last["systems"]["one"][key] for key in ("equal", "failed")} == {"equal": 2, "failed": 1}
    rows = _table(tmp_path, "one").rows
    assert [row.relation for row in rows] == [Relation.EQUAL, Relation.FAILED, Relation.EQUAL]
    assert (rows[1].figure, rows[1].note) == ("part", "ValueError: no such | [figure]")
    assert _table(tmp_path, "three").is_quick


def test_the_exit_status_is_0_if_nothing_fails(systems: Callable[..., None]) -> None:
    systems(one=lambda: {"part": _row("alone")})
    ran = _run("one")
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout.splitlines()[-1])["failed"] == []


def test_an_interruption_leaves_the_rows_that_were_found(systems: Callable[..., None], tmp_path: Path) -> None:
    systems(one=lambda: {"first": _row("whole"), "part": _row_and_interruption(), "last": _row("never computed")})
    ran = _run("one", "--output", tmp_path)
    assert ran.exit_code != 0
    table = _table(tmp_path, "one")
    assert [row.what for row in table.rows] == ["whole", "before the interruption"]
    assert table.missing == ("part", "last")


@pytest.mark.parametrize(
    ("done_s", "before_s", "left_s"),
    [
        ({}, {}, None),
        ({"a": 2.0}, {}, 4.0),
        ({}, {"a": 1.0, "b": 2.0, "c": 3.0}, 6.0),
        ({"a": 2.0}, {"a": 1.0, "b": 2.0, "c": 3.0}, 10.0),
        ({"a": 2.0}, {"a": 1.0, "b": 2.0}, 6.0),
        ({"a": 1.0, "b": 1.0, "c": 1.0}, {}, 0.0),
    ],
)
def test_the_time_left_follows_from_an_earlier_run_and_this_machine_s_pace(
    done_s: dict[str, float], before_s: dict[str, float], left_s: float | None
) -> None:
    assert seconds_left("abc", done_s, before_s) == left_s


def test_a_table_of_an_earlier_version_is_written_anew(systems: Callable[..., None], tmp_path: Path) -> None:
    systems(one=lambda: {"part": _row("alone")})
    earlier = {"figure": "1", "what": "a", "published": "1", "ours": "1", "relation": "equal", "note": ""}
    (tmp_path / "one.json").write_text(json.dumps({"rows": [earlier], "part_s": {"part": 2.0}, "is_quick": False}))
    assert _run("one", "--output", tmp_path).exit_code == 0
    assert [row.what for row in _table(tmp_path, "one").rows] == ["alone"]


def test_the_last_line_counts_kinds_apart_and_names_what_a_quick_run_leaves_out(
    monkeypatch: pytest.MonkeyPatch, systems: Callable[..., None]
) -> None:
    rows = [ratio_row("figure 1", "a", 2.0, 2.0, kind=kind) for kind in (Kind.PUBLISHED, Kind.FITTED, Kind.OWN)]
    study = Study(name="one", title="One", about="How.", parts={"part": rows}, is_quick=True, left_out=("figure 2",))
    systems(one=dict)
    monkeypatch.setattr(sys.modules["systems_of_test.one"], "reproduce", lambda **_: study)  # pyright: ignore[reportUnknownLambdaType]
    ran = _run("one", "--quick")
    one = json.loads(ran.stdout.splitlines()[-1])["systems"]["one"]
    assert one == {
        "took_s": one["took_s"],
        "equal": 1,
        "fitted": {"agrees": 1},
        "own reference": {"agrees": 1},
        "left out": ["figure 2"],
    }
    assert "Left out, as this is quick: figure 2." in ran.stdout
