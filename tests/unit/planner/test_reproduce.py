"""Rows relate figures as they say, and tables come back from their files."""

import importlib
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.papers import REPRODUCIBLE, adama, coconet, coconet_overlap, page
from benchmarks.papers.coconet import counts
from benchmarks.papers.hap.crossovers import figures_2_and_4
from benchmarks.papers.hap.seconds import figure_19
from benchmarks.papers.hidup.bars import figure_6
from benchmarks.papers.hidup.combination import combination
from benchmarks.papers.joint import at_once, commands
from benchmarks.papers.markdown import to_markdown
from benchmarks.papers.picture import draw_table
from benchmarks.papers.rows import number_row, ratio_row
from benchmarks.papers.study import Study
from benchmarks.papers.summary import SYSTEMS
from benchmarks.papers.superscaler import conversions
from benchmarks.papers.table import Kind, Line, Relation, Table, table_from_json
from benchmarks.papers.trainverify.figures import Model
from benchmarks.papers.trainverify.times import model_rows


@pytest.mark.parametrize(
    ("published", "ours", "relation"),
    [
        (2.0, 2.05, Relation.EQUAL),
        (2.0, 1.3, Relation.SAME_SIGN),
        (2.0, 0.9, Relation.DIFFERS),
        (1.02, 0.99, Relation.EQUAL),
        (0.5, 0.8, Relation.SAME_SIGN),
        (1.0, 1.5, Relation.DIFFERS),
    ],
)
def test_a_row_says_whether_the_same_side_wins(published: float, ours: float, relation: Relation) -> None:
    assert ratio_row("figure 1", "speed", published, ours).relation is relation


def test_numbers_are_equal_or_differ() -> None:
    assert number_row("figure 1", "seconds", 2.0, 2.05).relation is Relation.EQUAL
    assert number_row("figure 1", "seconds", 2.0, 1.5).relation is Relation.DIFFERS


def _ignore(_: object) -> None:
    pass


@pytest.fixture
def as_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves torch its threads, for the tests that come after."""
    monkeypatch.setattr(torch, "set_num_threads", _ignore)


@pytest.mark.usefixtures("as_many_threads")
@pytest.mark.parametrize("name", REPRODUCIBLE)
def test_nothing_is_computed_before_it_is_wanted_and_all_that_is_missing_is_known(name: str) -> None:
    told: list[str] = []
    study: Study = importlib.import_module(REPRODUCIBLE[name]).reproduce(quick=True, progress=told.append)
    begun = next(study.tables())
    assert (begun.name, begun.is_quick, begun.rows, told) == (name, True, (), [])
    assert begun.missing == tuple(study.parts)
    assert len(study.parts) > 1


@pytest.mark.usefixtures("as_many_threads")
@pytest.mark.parametrize(("module", "done"), [(adama, "algebra"), (coconet, "counts")])
def test_what_came_before_an_interruption_is_kept(module: Any, done: str) -> None:
    def interrupted(text: str) -> None:
        raise KeyboardInterrupt

    found: list[Table] = []
    study: Study = module.reproduce(quick=True, progress=interrupted)
    with pytest.raises(KeyboardInterrupt):
        found.extend(study.tables())
    assert found[-1].rows
    assert list(found[-1].part_s) == [done]
    assert found[-1].missing == tuple(study.parts)[1:]


def test_hap_s_crossovers() -> None:
    rows = list(figures_2_and_4())
    with_latency, without = rows[:2]
    assert (with_latency.ours, with_latency.relation) == ("0.883", Relation.EQUAL)
    assert (without.ours, without.relation) == ("1", Relation.DIFFERS)
    points = [row for row in rows if row.what.startswith("even / proportional")]
    assert len(points) == 7
    assert all((float(row.ours) > 1) == (float(row.published) > 1) for row in points)
    assert (rows[-1].figure, rows[-1].kind, rows[-1].relation) == ("figure 4", Kind.FITTED, Relation.AGREES)


def test_the_seconds_of_planning_are_told_by_layers() -> None:
    told: list[str] = []
    (row,) = figure_19(told.append, max_layers=1)
    assert told == ["figure 19, 1 layers"]
    assert 0 < float(row.ours) < 60
    assert row.published == "0.06"


def test_a_table_comes_back_from_its_file_and_shows_every_row() -> None:
    rows = (ratio_row("figure 1", "a | b", 2.0, 1.5), ratio_row("figure 2", "c", 1.0, 1.0, note="why"))
    table = Table(name="x", title="X (Y'24)", about="How.", rows=rows, took_s=12.3)
    assert table_from_json(table.to_json()) == table
    page = to_markdown([table])
    assert page.count("\n| figure ") == 2
    assert "a \\| b" in page
    assert "| 2 | 1.5 | same sign | ± 5% | -25% |" in page


def test_conversions_between_layouts_are_exact_and_never_dearer_than_by_hand() -> None:
    rows = list(conversions([2]))
    assert [row.relation for row in rows] == [Relation.AGREES] * 3
    assert [row.ours for row in rows] == ["50 of 50", "0 dearer, 0 cheaper", "64 by reduce_scatter"]


def test_rows_with_two_numbers_of_one_unit_are_drawn(tmp_path: Path) -> None:
    rows = [ratio_row("figure 1", "speed", 2.0, 1.5)]
    for published, ours in (("3 s", "4.5 s"), ("OOM", "4 GB"), ("3 s", "4 GB"), ("", "1"), ("0", "1")):
        rows.append(replace(rows[0], what=f"{published} and {ours}", published=published, ours=ours))
    table = Table(name="x", title="X (Y'24)", about="How.", rows=tuple(rows), took_s=12.3)
    assert draw_table(table, tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text()
    assert [f"<!-- {row.what} -->" in text for row in rows] == [True, True, False, False, False, False]
    assert draw_table(table, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == text
    assert not draw_table(replace(table, rows=tuple(rows[2:])), tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()
    assert "](img/x.svg)" in to_markdown([table], {"x": "img/x.svg"})


def test_a_chart_comes_back_from_its_file_and_is_drawn(tmp_path: Path) -> None:
    lines = [
        Line(panel=panel, height="loss", what=what, xs=(1.0, 10.0), means=(3.0, 2.0), lows=(2.9, 1.8), highs=(3.1, 2.1))
        for panel in ("steps", "flops")
        for what in ("ours", "theirs")
    ]
    study = Study(name="x", title="X (Y'24)", about="How.", parts={"curves": lines})
    table = table_from_json(study.table().to_json())
    assert (table.lines, table.rows) == (tuple(lines), ())
    assert draw_table(table, tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text()
    assert all(f"<!-- {each} -->" in text for each in ("steps", "flops", "loss", "ours", "theirs"))
    assert "![Loss over steps and flops](x.svg)" in to_markdown([table], {"x": "x.svg"})


def test_the_page_begins_with_what_comes_out_of_each_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (ratio_row("figure 1", "a", 2.0, 2.0), ratio_row("figure 1", "b", 2.0, 1.5), ratio_row("figure 1", "c", 2.0, 0.5))
    for name, missing in (("hap", ()), ("tag", ("part",))):
        table = Table(name=name, title=f"{name.upper()} (Y'24)", about="How.", rows=rows, took_s=1.0, missing=missing)
        (tmp_path / f"{name}.json").write_text(table.to_json())
    monkeypatch.setattr(sys, "argv", ["page", str(tmp_path), str(tmp_path / "page.md")])
    page.main()
    text = (tmp_path / "page.md").read_text()
    assert re.search(
        r"\| \[HAP\]\(#hap-y24\) \| .+ \| 3 \| 1 \| 1 \| 1 \|  \|  \|  \|  \| `python -m benchmarks.papers hap` \|", text
    )
    assert "| all | | 6 |" in text
    assert text.index("| all |") < text.index("### HAP (Y'24)")
    assert text.count("The run was interrupted; missing: part.") == 1
    assert (tmp_path / "img" / "planners" / "hap.svg").exists()
    assert set(REPRODUCIBLE) <= set(SYSTEMS)


def test_a_model_is_captured_planned_and_proved_in_a_row() -> None:
    sizes = {"hidden": 32, "heads": 4, "kv_heads": 2, "inner": 48, "vocabulary": 64, "sequence": 16}
    ways = {"dp": 2, "tp": 2, "pp": 2, "microbatches": 2}
    (row,) = model_rows(Model(name="small", total_s=1e6, sizes=sizes, ways=ways, layers=4))
    assert row.relation is Relation.SAME_SIGN
    assert re.search(r"4 layers, [\d,]+ steps, \d+ of them distinct", row.note)


@pytest.mark.slow
def test_hidup_hides_communication_on_its_cluster_and_the_combination_is_never_worse() -> None:
    bars = list(figure_6("ViT-Switch", 8))
    assert bars[1].relation in (Relation.EQUAL, Relation.SAME_SIGN)
    rows = list(combination("ViT", print, speeds=((3.0, 1.0),)))
    assert len(rows) == 3
    assert all(row.relation is Relation.OURS_ALONE for row in rows), rows


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_coconet_s_schedules_send_the_same_and_keep_less(num_ranks: int) -> None:
    sent, states, temporaries = counts(num_ranks)
    assert [row.relation for row in (sent, states, temporaries)] == [Relation.AGREES] * 3
    assert sent.published == f"{2 * (num_ranks - 1) * 2**14:,} each"
    assert states.ours.startswith(f"{2**15:,}, {2**15 // num_ranks:,}")
    assert temporaries.ours.startswith("11 tensors, ")
    assert "; 0 tensors, " in temporaries.ours
    assert [row.relation for row in coconet_overlap.counts(num_ranks)] == [Relation.AGREES]


def test_a_product_hides_its_ring_or_is_hidden_by_it() -> None:
    assert [row.relation for row in coconet_overlap.simulated(quick=True)] == [Relation.AGREES] * 2


def test_joint_placement_and_shares_are_best_at_once() -> None:
    (row,) = at_once()
    shares_s, placement_s, turns_s, at_once_s = (float(part.removesuffix(" s")) for part in row.ours.split(", "))
    assert at_once_s <= turns_s <= placement_s
    assert at_once_s <= shares_s
    (row,) = commands()
    assert row.relation is Relation.AGREES
