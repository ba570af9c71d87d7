"""How well two runs agree."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.table.records import Highest, Table, write_table
from benchmarks.table.repeat import agreement_of_rounds, agreements, main
from tests.unit.benchmarks.made_tables import cell, table


def run_of(ours: float, ray: float, triton: float, **changes: Any) -> Table:
    figures = {"dyorc": ours, "ray": ray, "triton": triton}
    return table(cells=[cell(system, p50, 10.0) for system, p50 in figures.items()], **changes)


def test_a_run_agrees_with_itself() -> None:
    for entry in agreements(table(), table()):
        assert (entry.share_within, entry.worst_difference) == (1, 0)
    assert [entry.figure for entry in agreements(table(), table())] == ["p50_ms", "p99_ms", "highest rate"]


def test_a_slower_machine_with_the_same_ratios_agrees() -> None:
    (p50, *_) = agreements(run_of(4, 12, 6), run_of(8, 24, 12))

    assert (p50.num_ratios, p50.share_within, p50.worst_difference) == (2, 1, pytest.approx(0))


def test_the_share_and_the_worst_difference_are_found() -> None:
    (p50, p99, _) = agreements(run_of(4, 12, 6), run_of(4, 12.9, 9))

    assert p50.share_within == 0.5
    assert p50.worst_difference == pytest.approx(0.5)
    assert p50.worst == "cascade, low, triton: 0.667 and 0.444"
    assert p99.share_within == 1


def test_the_order_of_the_runs_does_not_matter() -> None:
    one, other = run_of(4, 12, 6), run_of(5, 11, 9)

    assert [entry.worst_difference for entry in agreements(one, other)] == pytest.approx(
        [entry.worst_difference for entry in agreements(other, one)]
    )


def test_a_cell_that_only_one_run_has_does_not_count() -> None:
    fewer = table(cells=[cell("dyorc", 4.4, 9.0), cell("ray", 12.0, 30.0)], highest=[])

    assert [(entry.figure, entry.num_ratios) for entry in agreements(table(), fewer)] == [("p50_ms", 1), ("p99_ms", 1)]


def test_rounds_of_one_run_are_compared() -> None:
    cells = [
        cell("dyorc", 4.5, 9.0, p50s_ms=[4.0, 5.0], p99s_ms=[9.0, 9.0]),
        cell("ray", 9.0, 9.0, p50s_ms=[8.0, 10.0], p99s_ms=[8.0, 16.0]),
    ]

    p50, p99 = agreement_of_rounds(table(cells=cells))

    assert (p50.num_ratios, p50.worst_difference) == (1, pytest.approx(0))
    assert p99.worst_difference == pytest.approx(1)
    assert agreement_of_rounds(table()) == []


def test_there_is_no_ratio_to_a_system_that_cannot_keep_up() -> None:
    cells = [cell("dyorc", 4.0, 9.0), cell("ray", 3000.0, 4000.0, goodput_ratio=0.1)]

    assert agreements(table(cells=cells, highest=[]), table(cells=cells, highest=[])) == []


def test_there_is_no_ratio_to_zero() -> None:
    rates = [Highest(workload="cascade", system="dyorc", rps=9.0), Highest(workload="cascade", system="ray", rps=0.0)]

    assert [entry.figure for entry in agreements(table(highest=rates), table())] == ["p50_ms", "p99_ms"]


def test_the_command_line_compares_two_runs(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(main)
    write_table(run_of(4, 12, 6), tmp_path / "a.json")
    write_table(run_of(4, 12.9, 9), tmp_path / "b.json")

    done = CliRunner().invoke(app, [str(tmp_path / "a.json"), str(tmp_path / "b.json")], catch_exceptions=False)

    *rows, last = done.output.splitlines()
    assert rows[1].split()[:4] == ["p50", "2", "50%", "50.0%"]
    figures = json.loads(last)["figures"]
    assert (figures[0]["figure"], figures[0]["share_within"]) == ("p50_ms", 0.5)
    assert json.loads(CliRunner().invoke(app, [str(tmp_path / "a.json")]).output.splitlines()[-1])["figures"] == []
    assert CliRunner().invoke(app, [str(tmp_path / "a.json"), str(tmp_path / "none.json")]).exit_code == 2
