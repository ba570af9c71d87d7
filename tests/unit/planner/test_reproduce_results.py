"""The tables in the repository are what the code says, and quick runs say nothing else."""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch

from benchmarks.papers import REPRODUCIBLE
from benchmarks.papers.page import page_of, tables_in
from benchmarks.papers.study import Study
from benchmarks.papers.table import COMPARED, Relation, Row, Table, equal_as
from benchmarks.papers.trends import trends

_ROOT = Path(__file__).parents[3]
_RESULTS = _ROOT / "benchmarks" / "results" / "planners"
_TABLES = {table.name: table for table in tables_in(_RESULTS)}
_CHEAP: Mapping[str, Sequence[str]] = {
    "hap": ["figures 2 and 4"],
    "tag": ["NCCL", "not here"],
    "superscaler": ["bytes of collectives", "not here"],
    "tessel": ["whole problems", "not here"],
    "crossover": ["formulas"],
    "coconet": ["counts", "a layer's sizes"],
    "adama": ["algebra", "the formula", "reduced bytes"],
    "evomoe": ["costs"],
    "ngra": ["equality"],
    "joint": ["commands"],
}
"""Parts without times, which come out the same everywhere."""


def _ignore(_: object) -> None:
    pass


@pytest.fixture
def as_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves torch its threads, for the tests that come after."""
    monkeypatch.setattr(torch, "set_num_threads", _ignore)


def _study(name: str, *, quick: bool) -> Study:
    return importlib.import_module(REPRODUCIBLE[name]).reproduce(quick=quick, progress=_ignore)


def _judged(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.relation in COMPARED]


def _compared(row: Row) -> tuple[str, ...]:
    """What a row compares with what, and how."""
    return (row.figure, row.what, row.published, row.band, row.kind)


def test_there_is_a_table_of_each_system_and_each_is_of_a_full_run() -> None:
    assert list(_TABLES) == list(REPRODUCIBLE)
    assert not any(table.is_quick or table.missing or table.left_out for table in _TABLES.values())


@pytest.mark.parametrize("table", _TABLES.values(), ids=_TABLES)
def test_verdicts_follow_from_the_numbers_the_bands_and_the_kinds(table: Table) -> None:
    numeric = 0
    for row in _judged(table.rows):
        if row.band.startswith("± "):
            numeric += 1
            ratio = float(row.band.removeprefix("± ").removesuffix("%")) / 100
            error = abs(float(row.ours.removesuffix("%")) / float(row.published) - 1)
            is_equal = row.relation is equal_as(row.kind)
            assert error <= ratio + 0.02 if is_equal else error >= ratio - 0.02, row  # to three digits
    assert numeric or table.name in ("evomoe", "ngra", "gnn", "adama")


@pytest.mark.parametrize("table", _TABLES.values(), ids=_TABLES)
def test_trends_follow_from_the_rows(table: Table) -> None:
    assert [row for row in table.rows if row.what.startswith("trend of ")] == list(trends(table.rows))


def test_the_page_is_written_from_these_tables() -> None:
    pictures = {name: f"img/planners/{name}.svg" for name in _TABLES if (_ROOT / "docs/img/planners" / f"{name}.svg").exists()}
    assert (_ROOT / "docs" / "planners.md").read_text() == page_of(_RESULTS, list(_TABLES.values()), pictures)


@pytest.mark.usefixtures("as_many_threads")
@pytest.mark.parametrize("name", REPRODUCIBLE)
def test_a_quick_run_has_parts_of_the_full_one_and_names_the_others(name: str) -> None:
    full, quick = (_study(name, quick=quick) for quick in (False, True))
    assert not full.left_out
    assert set(quick.parts) <= set(full.parts)
    assert {part for part in full.parts if part not in quick.parts} <= set(quick.left_out)
    assert next(quick.tables()).left_out == quick.left_out


@pytest.mark.usefixtures("as_many_threads")
@pytest.mark.parametrize("name", _CHEAP)
def test_a_quick_run_gives_the_verdicts_of_the_full_one(name: str) -> None:
    study = _study(name, quick=True)
    rows = [row for part in _CHEAP[name] for row in study.parts[part] if isinstance(row, Row)]
    stored = {_compared(row): row.relation for row in _TABLES[name].rows}
    assert rows
    without_times = [row for row in rows if row.band != "sign alone"]
    assert {_compared(row): row.relation for row in without_times}.items() <= stored.items()
    assert {_compared(row) for row in rows} <= set(stored)


@pytest.mark.slow
@pytest.mark.usefixtures("as_many_threads")
@pytest.mark.parametrize("name", REPRODUCIBLE)
def test_every_row_that_a_quick_run_judges_is_a_row_of_the_full_table(name: str) -> None:
    table = _study(name, quick=True).table()
    assert not table.count(Relation.FAILED)
    described = {(row.figure, row.what, row.band, row.kind) for row in _TABLES[name].rows}
    assert {(row.figure, row.what, row.band, row.kind) for row in _judged(table.rows)} <= described
