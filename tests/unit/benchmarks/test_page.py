"""The benchmark's pages."""

from pathlib import Path
from xml.etree import ElementTree

import typer
from msgspec.structs import replace
from typer.testing import CliRunner

from benchmarks.serving import ROOT
from benchmarks.table import page as page_module
from benchmarks.table import picture as picture_module
from benchmarks.table.html_page import html_page
from benchmarks.table.overview import overview
from benchmarks.table.page import page, pages
from benchmarks.table.picture import highest_picture
from benchmarks.table.reasons import REASONS, read_reasons
from benchmarks.table.records import Cannot, Highest, OracleRecord, read_table, write_table
from benchmarks.table.tables import plain
from benchmarks.table.tails import tails
from tests.unit.benchmarks.made_tables import cell, large_table, table
from tests.unit.benchmarks.made_tables import workload as record
from tests.unit.loadgen.pages import Page, hints, name_of, pictures, words


def rows(document: str, first: str) -> list[list[str]]:
    """Returns the rows with this first cell, from all tables of a Markdown document."""
    found = [line.strip("|").split("|") for line in document.splitlines() if line.startswith("|")]
    return [[text.strip() for text in row] for row in found if row[0].strip() == first]


def invoke(main: object, *arguments: str | Path) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(main)  # pyright: ignore[reportArgumentType]
    done = CliRunner().invoke(app, list(map(str, arguments)))
    return done.exit_code, done.output


def test_a_page_shows_the_figures_of_a_workload() -> None:
    document = page(table(), {})

    (ours,) = [row for row in rows(document, "DyOrc") if "dev" in row[1]]
    assert ours[1] == "**4.40** / **9.00**<br>100.0 % · 1.10 dev · 1.10 / 1.12 x"
    (ray,) = [row for row in rows(document, "ray") if "dev" in row[1]]
    assert ray[3].startswith("12.0 / 30.0<br>")
    assert rows(document, "*oracle*")[0][2] == "4.00 / 8.00<br>1.00 dev"
    assert rows(document, "cascade (25 ms)") == [["cascade (25 ms)", "**900**", "150", "400", "2.25"]]
    assert "DyOrc meets all its goals." in document
    assert "loses" not in document


def test_every_table_has_as_many_cells_in_each_row() -> None:
    document = page(large_table(), {"chain": "a | b\nc"})

    for block in document.split("\n\n"):
        if block.startswith("|"):
            assert len({line.replace("\\|", "").count("|") for line in block.splitlines()}) == 1, block


def test_a_page_shows_how_well_rounds_agree() -> None:
    cells = [
        cell("dyorc", 4.0, 9.0, p50s_ms=[4.0, 4.0], p99s_ms=[9.0, 9.0]),
        cell("ray", 6.0, 9.0, p50s_ms=[8.0, 6.0], p99s_ms=[9.0, 9.0]),
    ]

    assert rows(page(table(cells=cells), {}), "p50")[-1] == [
        "p50",
        "1",
        "0%",
        "33.3%",
        "33.3%",
        "cascade, low, ray: 0.5 and 0.667",
    ]
    assert "two rounds agree" not in page(table(), {})


def test_a_page_shows_where_dyorc_loses() -> None:
    document = page(large_table(), {"chain": "Triton's server is C++"})

    assert "## Where DyOrc loses" in document
    misses = [row for row in rows(document, "chain, low") if row[1] == "p50"]
    assert misses == [["chain, low", "p50", "4.20", "triton 3.36", "1.25 x"]]
    assert document.count("* **chain**: Triton's server is C++") == 1
    assert "* **Missed** (reached in 36 of 42)" in document
    assert ["chain", "highest rate", "167", "triton 208", "0.80 x"] in rows(document, "chain")
    assert "does not count" not in document
    devices = page(replace(large_table(), on_devices=True), {})
    assert "The goal below does not count chain (ratio 0.80) and fanout (ratio 1.20)." in devices


def test_a_page_names_errors_saturation_and_limits() -> None:
    document = page(large_table(), {})

    (ray,) = [row for row in rows(document, "ray") if "dev" in row[1]][:1]
    assert ray[3] == "504 / 1,620 †<br>20.0 % · 1.10 dev · 126.00 / 202.50 x<br>1 failed"
    (ours,) = [row for row in rows(document, "DyOrc") if "dev" in row[1]][:1]
    assert ours[3].endswith("generator was the limit")
    assert rows(document, "cascade (25 ms)")[0][1] == "**≥ 1,000**"


def test_the_best_value_is_bold_only_where_values_can_be_compared() -> None:
    cells = [cell("dyorc", 4.0, 9.0), cell("ray", 1.0, 2.0, failed=500), cell("triton", 6.0, 8.0)]

    document = page(table(cells=cells), {})

    found = {
        name: next(row[1] for row in rows(document, name) if "dev" in row[1]).split("<br>")[0]
        for name in ("DyOrc", "ray", "triton")
    }
    assert found == {"DyOrc": "**4.00** / 9.00", "ray": "1.00 / 2.00", "triton": "6.00 / **8.00**"}


def test_a_system_that_cannot_differs_from_one_not_measured() -> None:
    cannot = [Cannot(workload="cascade", system="mosec", reason="no way back")]
    found = table(cannot=cannot, highest=[*table().highest, Highest(workload="other", system="bentoml", rps=1.0)])

    document = page(found, {})

    assert ["mosec", "cannot", "cannot", "cannot"] in rows(document, "mosec")
    assert "mosec cannot: no way back." in document
    assert ["bentoml", "not measured", "not measured", "not measured"] in rows(document, "bentoml")


def test_only_systems_with_figures_are_said_to_have_run() -> None:
    known = {"dyorc": "0.1.0", "ray": "2.60", "ray_default": "2.60", "triton": "2.51"}
    found = table(versions=known, notes={"ray": "throughput mode", "ray_default": "its own proxy"})

    document = page(found, {})

    assert ["ray", "2.60", "throughput mode"] in rows(document, "ray")
    for text in (document, html_page(found, {})):
        assert "ray_default" not in text.replace("\\", "")
        assert "its own proxy" not in text
        assert "throughput mode" in text


def test_the_pages_in_docs_are_what_the_stored_tables_say() -> None:
    stored = [read_table(ROOT / "benchmarks" / "results" / run / "table.json") for run in ("full", "full-devices")]

    for path, text in pages(stored, read_reasons(REASONS)).items():
        assert (ROOT / "docs" / path).read_text(encoding="utf-8") == text, path


def test_text_is_escaped_for_markdown() -> None:
    assert plain("a|b *c* <d> & e_f\n`g`") == "a\\|b \\*c\\* &lt;d&gt; &amp; e\\_f \\`g\\`"


def test_the_html_page_holds_its_pictures() -> None:
    text = html_page(large_table(), {"chain": "Triton's server is C++"})
    seen = Page(text)

    assert seen.is_complete_in_itself()
    for fact in (
        "36 of 42",
        "mosec: a pipeline of stages has no way back <b>",
        "Triton's server is C++",
        "throughput mode",
        "agree",
    ):
        assert fact in seen.text
    names = [name_of(picture) for picture in pictures(text)]
    for name in ("cascade", "ocr", "guarded", "router", "loop", "chain", "fanout"):
        assert {f"{name}: latency against load", f"{name}: latency"} <= set(names)
    assert len(names) == 1 + 7 * 5


def test_a_system_has_one_colour_on_all_pictures() -> None:
    found: dict[str, set[str]] = {}
    for picture in pictures(html_page(large_table(), {})):
        for group in picture.iter("{http://www.w3.org/2000/svg}rect"):
            said = group.findtext("{http://www.w3.org/2000/svg}title") or ""
            for system in ("DyOrc", "ray", "triton"):
                if said == system or f", {system}: " in said:
                    found.setdefault(system, set()).add(group.get("fill", ""))

    assert {system: len(colours) for system, colours in found.items()} == {"DyOrc": 1, "ray": 1, "triton": 1}
    assert len(set().union(*found.values())) == 3


def test_text_from_outside_is_escaped() -> None:
    evil = "</style><script>alert(1)</script>"
    found = large_table()
    found = type(found)(
        **{name: getattr(found, name) for name in found.__struct_fields__}
        | {
            "versions": {evil: evil},
            "notes": {evil: evil},
            "machine": {evil: evil},
            "cannot": [Cannot(workload="loop", system=evil, reason=evil)],
            "cells": [cell(evil, 1.0, 2.0, speculation={evil: 1.0}, batch_sizes={evil: {"1": 1}}), *found.cells],
        }
    )

    assert "<script" not in html_page(found, {"chain": evil})
    assert Page(html_page(found, {"chain": evil})).is_complete_in_itself()
    assert "<script" not in page(found, {})


def test_a_picture_needs_no_other_file() -> None:
    picture = ElementTree.fromstring(highest_picture(large_table(), is_alone=True))

    bars = hints(picture, "rect")
    assert "cascade, DyOrc: 1.2" in bars
    assert "chain, triton: 1" in bars
    assert not any(bar.startswith("loop, mosec") and "rect" in bar for bar in bars if ": " not in bar)
    assert {"DyOrc", "cascade", "1.2", "–"} <= set(words(picture))
    style = picture.findtext("{http://www.w3.org/2000/svg}style") or ""
    assert "--s0:" in style
    assert "prefers-color-scheme:dark" in style


def test_large_ratios_are_drawn_on_a_logarithmic_scale() -> None:
    rates = [Highest(workload="cascade", system="dyorc", rps=9000.0), Highest(workload="cascade", system="ray", rps=100.0)]

    picture = ElementTree.fromstring(highest_picture(table(highest=rates)))

    assert {"0.1", "1", "10", "100"} <= set(words(picture))
    assert highest_picture(table(highest=[])) == ""


def test_the_command_line_writes_the_pages(tmp_path: Path) -> None:
    source, docs = tmp_path / "full" / "table.json", tmp_path / "docs"
    write_table(large_table(), source)

    code, _ = invoke(page_module.main, source, "--docs", docs, "--reasons", tmp_path / "none.toml")

    assert code == 0
    written = {str(path.relative_to(docs)): path.read_text(encoding="utf-8") for path in docs.rglob("*.md")}
    assert written == pages([large_table()], {})
    assert (tmp_path / "full" / "report.html").exists()
    code, _ = invoke(picture_module.main, source, "-o", tmp_path / "img" / "b.svg")
    assert code == 0
    ElementTree.parse(tmp_path / "img" / "b.svg")
    code, said = invoke(page_module.main, tmp_path / "none.json", "--docs", docs)
    assert (code, "none.json" in said) == (2, True)


def test_both_tables_stand_side_by_side() -> None:
    said = {"predicted_p50_ms": 4.0, "predicted_p99_ms": 11.0}
    speeds = {"python_ms": [2.0, 3.0], "blas_ms": [0.5, 0.6]}
    cells = [
        cell("dyorc", 5.0, 11.0, rounds=[0, 1], p50s_ms=[5.0, 5.0], p99s_ms=[11.0, 11.0], **said),
        cell("dyorc_cell", 4.0, 10.0, rounds=[0, 1], p50s_ms=[4.0, 4.0], p99s_ms=[10.0, 10.0], **speeds),
        cell("triton", 6.0, 9.0, rounds=[0, 1], p50s_ms=[6.0, 6.4], p99s_ms=[9.0, 9.0]),
        cell("ray", 90.0, 99.0, goodput_ratio=0.1),
    ]  # fmt: skip
    programs = {"small": [(1, 0.2)], "large": [(1, 0.5)]}
    devices = table(on_devices=True, cells=cells, workloads=[record("cascade", costs=programs)], highest=[
        Highest(workload="cascade", system="dyorc", rps=100.0),
        Highest(workload="cascade", system="dyorc_cell", rps=130.0),
        Highest(workload="cascade", system="triton", rps=100.0),
    ])  # fmt: skip

    reasons = {"devices: cascade": "Triton is quick", "cascade": "of the other table"}

    beside, document = overview([table(), devices]), page(devices, reasons)

    (low,) = rows(beside, "cascade, low")[:1]
    assert low[1:4] == ["4.40 / 9.00", "6.00 / 14.0 (triton)", "1.36 / 1.56"]
    assert low[4:] == ["4.00 / 10.0", "6.00 / 9.00 (triton)", "1.50 / 0.90"]
    (medium,) = rows(beside, "cascade, medium")[:1]
    assert medium[4:] == ["not measured", "", ""]
    (highest,) = rows(beside, "cascade, highest rate")[:1]
    assert highest[4:] == ["130", "100 (triton)", "1.30"]
    assert "DyOrc x 1.55 (1.50 to 1.60)" in document
    assert "They take turns of a few seconds." in document
    assert "one after the other" in page(table(), reasons)
    assert ["cascade, low", "DyOrc", "5.00", "4.00", "-20%", "11.0", "11.0", "+0%"] in rows(document, "cascade, low")
    assert "low 2.0 to 3.0 and 0.50 to 0.60" in document
    for text in (document, html_page(devices, reasons)):
        assert "Triton is quick" in text
        assert "of the other table" not in text
    assert "1.2 times the best peer's" in document


def test_the_head_says_the_result_and_the_losses() -> None:
    slow = [
        Highest(workload="cascade", system="dyorc", rps=100.0),
        Highest(workload="cascade", system="triton", rps=200.0),
        Highest(workload="cascade", system="ray", rps=0.0),
    ]

    head = overview([table(highest=slow)])

    assert rows(head, "triton") == [["triton", "0.50 (cascade)"]]
    assert rows(head, "ray") == [["ray", "cascade: never within the limit"]]
    assert "its rate is the highest on 0 of 1 workloads, and not on cascade (0.50 of triton's)" in head
    assert "p50 and p99 are below every peer's in 6 of 6 cells." in head
    assert head.index("The losses") < head.index("## Side by side")


def test_tails_are_shown_beside_those_of_the_oracle() -> None:
    oracle = {"medium": OracleRecord(p50_ms=2.0, p99_ms=9.0, device_ms_per_request=1.0)}
    cells = [
        cell("dyorc", 4.0, 14.0, load="medium"),
        cell("triton", 6.0, 12.0, load="medium"),
        cell("mosec", 5.0, 13.0, load="medium"),
        cell("ray", 9.0, 10.0, load="medium", goodput_ratio=0.1),
    ]
    measured = table(workloads=[record(oracle=oracle), record("loop", oracle={})], cells=cells)
    document = "\n\n".join(tails([measured]))
    assert rows(document, "cascade") == [["cascade", "3.5", "2.0 (triton)", "4.5"]]
    assert rows(document, "loop") == [["loop", "not measured", "", ""]]
    assert document in overview([measured])
