"""The page of results."""

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from loadgen.compare import compare
from loadgen.report.bars import size_shares
from loadgen.report.charts import shares
from loadgen.report.naming import name_results
from loadgen.report.page import page
from loadgen.report.reading import read_results
from loadgen.report.scales import linear, logarithmic, nines
from loadgen.results import RunResult, ServerFigures
from loadgen.sweep import sweep
from tests.unit.loadgen.made_results import branch, histogram, latencies, result, timeline
from tests.unit.loadgen.pages import Page, hints, name_of, pictures, words

EVIL = "</title></style><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x00\ud800"


def full(label: str = "mine", **changes: object) -> RunResult:
    server = ServerFigures(
        batch_sizes={"small": {"1": 10, "8": 10}, "large": {"2": 3}},
        device_ms_per_request={"small": 0.31, "large": 1.27},
        speculation={"committed": 321, "wasted": 12},
    )
    found = {
        "errors": {"HTTP 503: busy": 7},
        "branches": {"sure": branch(latencies(100)), "unsure": branch(latencies(100, median_ms=50))},
        "client_warning": "send delay p99 4 ms; use more workers",
        "server": server,
    }
    return result(label, **(found | changes))


def test_every_part_of_the_page_exists() -> None:
    text = page([full()], heading="A heading")
    seen = Page(text)

    for heading in ("A heading", "Results", "Latency", "By branch", "Batches", "Speculation", "Errors", "What was run"):
        assert heading in seen.texts
    for fact in ("send delay p99 4 ms", "HTTP 503: busy", "sure", "unsure", "0.31", "1.27", "a processor", "abc123", "321"):
        assert fact in seen.text
    assert [name_of(picture) for picture in pictures(text)] == [
        "Latency",
        "Batches of small",
        "Batches of large",
        "Speculation, count",
    ]
    assert seen.is_complete_in_itself()


def test_many_warnings_are_cut_short() -> None:
    text = Page(page([result("a", rate_rps=rate, client_warning="busy") for rate in range(1, 21)])).text

    assert text.count("busy") == 8
    assert "and 12 more" in text


def test_unknown_figures_are_left_out() -> None:
    text = page([result()])

    for heading in ("By branch", "Batches", "Speculation", "Errors", "Latency against load", "the limit"):
        assert heading not in Page(text).text
    assert [name_of(picture) for picture in pictures(text)] == ["Latency"]


def test_text_from_outside_is_escaped() -> None:
    evil = full(EVIL, errors={EVIL: 1}, branches={EVIL: branch(latencies(9))}, client_warning=EVIL)
    evil = msgspec.structs.replace(
        evil,
        server=ServerFigures(batch_sizes={EVIL: {"1": 1}}, device_ms_per_request={EVIL: 1.0}, speculation={EVIL: 1.0}),
        machine={EVIL: EVIL},
        versions={EVIL: EVIL},
        commit=EVIL,
        target={"url": EVIL},
        started_at=EVIL,
    )

    text = page([evil, result("b", rate_rps=3), result("b", rate_rps=9)], heading=EVIL)

    assert Page(text).is_complete_in_itself()
    assert "<script" not in text
    assert "alert(1)" in Page(text).text
    assert len(pictures(text)) == 4
    text.encode()  # no half of a surrogate pair


def test_marks_lie_at_the_quantiles() -> None:
    (picture,) = pictures(page([result(median_ms=5)]))

    marks = hints(picture, "circle")

    exact = result(median_ms=5).latency_ms
    points, num = shares(histogram(latencies(median_ms=5)))
    assert num == 2000
    p50_ms = next(ms for ms, share in points if share >= 0.5)
    assert p50_ms == pytest.approx(exact.p50, rel=0.01)
    assert marks == [f"dyorc: p50 {p50_ms:.4g} ms", marks[1]]
    assert float(marks[1].split()[2]) == pytest.approx(exact.p99, rel=0.03)
    assert "SLO 25 ms" in words(picture)


def test_latency_against_load_needs_several_rates() -> None:
    several = [result(label, rate_rps=rate, seed=int(rate)) for label in ("a", "b") for rate in (400, 100, 200)]

    drawn = {name_of(picture): picture for picture in pictures(page(several))}

    chart = drawn["Latency against load"]
    assert {"a", "b", "SLO 25 ms", "requests a second"} <= set(words(chart))
    lines = hints(chart, "path")
    assert [line for line in lines if "p" in line] == ["a: p50", "a: p99", "b: p50", "b: p99"]
    points = [hint for hint in hints(chart, "circle") if hint.startswith("a: p50")]
    assert [hint.rsplit(" at ")[1] for hint in points] == ["100 requests/s", "200 requests/s", "400 requests/s"]
    rounds = [result("a", rate_rps=100, seed=seed) for seed in range(2)]
    assert "Latency against load" not in page(rounds)


def test_the_course_of_a_measurement_is_drawn_over_its_time() -> None:
    several = [result("a", timeline=timeline()), result("b", timeline=timeline())]

    drawn = {name_of(picture): picture for picture in pictures(page(several))}

    assert list(drawn) == ["Latency", "Latency over time", "Rate over time", "Requests without an answer"]
    for name, figures in (
        ("Latency over time", ["p50", "p99"]),
        ("Rate over time", ["answered", "due"]),
        ("Requests without an answer", ["waiting"]),
    ):
        lines = {hint for hint in hints(drawn[name], "path") if ": " in hint}
        assert lines == {f"{label}: {figure}" for label in "ab" for figure in figures}
        assert {"seconds", "0", "4"} <= set(words(drawn[name]))
    assert "SLO 25 ms" in words(drawn["Latency over time"])


def test_a_step_without_requests_is_a_gap() -> None:
    drawn = {name_of(picture): picture for picture in pictures(page([result("a", timeline=timeline())]))}

    latency = drawn["Latency over time"]
    (p50,) = [path for path in latency.iter("{http://www.w3.org/2000/svg}path") if "p50" in "".join(path.itertext())]
    assert len(p50.attrib["d"].split("L")) == 2  # the first two seconds
    assert hints(latency, "circle").count("a: p50") == 1  # the last one


def test_errors_are_drawn_if_there_were_any() -> None:
    found = result("a", timeline=timeline(bad=[0, 30, 0, 10]))

    drawn = {name_of(picture): picture for picture in pictures(page([found]))}

    assert "at most 30" in "".join(drawn["Errors over time"].itertext())


def test_results_of_earlier_versions_have_no_course() -> None:
    assert "Over time" not in Page(page([result("a")])).text


def test_a_trace_shows_the_rate_it_reached() -> None:
    sizes = {label: ServerFigures(batch_sizes={label: {"1": 1}}) for label in ("slow", "fast")}
    fast = result("a", rate_rps=0.0, arrivals="trace", server=sizes["fast"])  # 2,000 requests in 10 s
    slow = result("a", rate_rps=50.0, arrivals="trace", server=sizes["slow"])

    text = page([fast, slow])

    drawn = {name_of(picture): picture for picture in pictures(text)}
    assert "Batches of fast" in drawn  # of each label, the measurement with the highest rate
    assert "Batches of slow" not in drawn
    points = [hint for hint in hints(drawn["Latency against load"], "circle") if "p50" in hint]
    assert [hint.rsplit(" at ")[1] for hint in points] == ["50 requests/s", "200 requests/s"]
    assert "trace, 200/s" in Page(text).texts


def test_repeated_points_are_marks_around_their_median() -> None:
    repeated = [result("a", rate_rps=rate, median_ms=ms) for rate in (100, 200) for ms in (3, 5, 9)]

    drawn = {name_of(picture): picture for picture in pictures(page(repeated))}

    chart = drawn["Latency against load"]
    (p50,) = [path for path in chart.iter("{http://www.w3.org/2000/svg}path") if "p50" in "".join(path.itertext())]
    ends = [tuple(map(float, point.split())) for point in p50.attrib["d"].removeprefix("M").split("L")]
    assert len(ends) == 2
    assert ends[0][0] < ends[1][0]  # no vertical line
    marks = [circle for circle in chart.iter("{http://www.w3.org/2000/svg}circle") if ": p50" in "".join(circle.itertext())]
    assert len(marks) == 6
    heights = sorted(float(mark.attrib["cy"]) for mark in marks if float(mark.attrib["cx"]) == ends[0][0])
    assert heights[1] == ends[0][1]  # through the one in the middle


def test_without_guesses_there_is_no_chart_of_them() -> None:
    nothing = ServerFigures(speculation={"num_commits": 0.0, "num_squashes": 0.0, "wasted_s": 0.0})
    counts_only = ServerFigures(speculation={"num_commits": 4.0, "num_squashes": 0.0, "wasted_s": 0.0})

    assert "Speculation" not in Page(page([result("a", server=nothing)])).text
    both = page([result("a", server=nothing), result("b", server=counts_only)])
    charts = [picture for picture in pictures(both) if "Speculation" in name_of(picture)]
    assert [name_of(picture) for picture in charts] == ["Speculation, count"]
    assert hints(charts[0], "rect")[1:] == ["commits, b: 4", "squashes, b: 0"]


def test_series_are_told_apart() -> None:
    results = [result("a"), result("a", rate_rps=9), result("b"), result("b"), result("b, no. 1")]

    entries = name_results(results)

    assert [entry.name for entry in entries][:2] == ["a, 200/s", "a, 9/s"]
    assert len({entry.name for entry in entries}) == 5
    assert len({entry.style for entry in entries}) == 5
    assert [entry.style % 8 for entry in entries] == [0, 0, 1, 1, 2]
    many = name_results([result("a", rate_rps=rate) for rate in range(1, 30)])
    assert len({entry.style for entry in many}) == 29


def test_a_table_with_a_column_for_the_rate_has_no_two_rows_with_one_name() -> None:
    results = [result("a"), result("a"), result("a", rate_rps=9), result("b"), result("c, no. 1"), result("c"), result("c")]

    names = [entry.name_beside_rate for entry in name_results(results)]

    assert names[:4] == ["a, no. 1", "a, no. 2", "a", "b"]
    assert len(set(names)) == 7


def test_two_runs_with_one_label_are_told_apart_in_all_tables() -> None:
    seen = Page(page([full("a"), full("a")]))

    assert (seen.texts.count("a, no. 1"), seen.texts.count("a, no. 2")) == (3, 3), "under Results, and two branches each"
    assert "a" not in seen.texts


def test_calls_are_shown_by_the_size_of_their_batch() -> None:
    assert size_shares({"1": 10, "2": 5, "3": 10, "4": 5, "0": 7}) == [pytest.approx(100 * part / 70) for part in (10, 10, 50)]
    assert size_shares({}) == []


def test_guesses_are_counted_apart_from_seconds() -> None:
    figures = {"num_commits": 40.0, "num_squashes": 2.0, "useful_s": 1.5, "wasted_s": 0.25}

    counts, seconds = pictures(page([result(server=ServerFigures(speculation=figures))]))[1:]

    assert hints(counts, "rect")[1:] == ["commits, dyorc: 40", "squashes, dyorc: 2"]
    assert hints(seconds, "rect")[1:] == ["useful, dyorc: 1.5", "wasted, dyorc: 0.25"]


def test_scales_place_values_and_marks() -> None:
    assert list(linear(730).ticks)[-1] >= 730
    assert linear(0).at(0) == 0
    scale = logarithmic(0.3, 70)
    assert (scale.low, scale.high) == (0.2, 100)
    assert scale.at(0.2) == 0
    assert scale.at(1e9) == 1
    assert all(low < high for low, high in zip(scale.ticks, scale.ticks[1:], strict=False))
    assert len(logarithmic(1e-3, 1e6).ticks) <= 10
    shares_scale = nines(2000)
    assert shares_scale.at(0.99) - shares_scale.at(0.9) == pytest.approx(shares_scale.at(0.999) - shares_scale.at(0.99))
    assert [shares_scale.label(tick) for tick in shares_scale.ticks] == ["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %"]


def test_a_single_value_is_drawn() -> None:
    alone = msgspec.structs.replace(result(), histogram=histogram([3.0]))
    none = msgspec.structs.replace(result(), histogram=histogram([]))

    assert len(pictures(page([alone]))) == 1
    assert pictures(page([none])) == []


def test_files_of_every_kind_are_read(tmp_path: Path) -> None:
    runs = [result("a"), result("b", rate_rps=7)]
    written = {
        "one": (runs[0], runs[:1]),
        "several": (runs, runs),
        "comparison": (compare({"a": lambda _: runs[0], "b": lambda _: runs[1]}, num_rounds=1), runs),
        "sweep": (sweep(lambda _: runs[0], start_rps=1, max_rps=1), runs[:1]),
    }
    for name, (content, expected) in written.items():
        path = tmp_path / f"{name}.json"
        path.write_bytes(msgspec.json.encode(content))
        assert read_results(path) == expected


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'"text"', b"\xff", b'[{"label": 1}]'])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)

    with pytest.raises(ValueError, match=r"x\.json"):
        read_results(path)


def test_other_schemas_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(result(), schema=2)))

    with pytest.raises(ValueError, match="schema 2, expected 1"):
        read_results(path)


def test_the_command_line_writes_the_page(tmp_path: Path) -> None:
    import typer

    from loadgen.report_cli import report_command

    app = typer.Typer()
    app.command()(report_command)
    source, out = tmp_path / "a.json", tmp_path / "r.html"
    source.write_bytes(msgspec.json.encode([result("a"), result("b")]))

    done = CliRunner().invoke(app, [str(source), str(source), "-o", str(out), "--title", "Mine"], catch_exceptions=False)

    assert done.exit_code == 0
    assert "4 results" in done.output
    assert "<h1>Mine</h1>" in out.read_text(encoding="utf-8")
    missing = CliRunner().invoke(app, [str(tmp_path / "none.json"), "-o", str(out)])
    assert missing.exit_code == 2
    assert "none.json" in missing.output
