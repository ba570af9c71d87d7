"""The page of some measurements, with charts and figures."""

from collections.abc import Sequence

from loadgen.report.bars import batch_chart, speculation_charts
from loadgen.report.charts import Curve, LoadLine, cdf_chart, load_chart
from loadgen.report.courses import Course, course_charts
from loadgen.report.naming import NamedResult, name_results
from loadgen.report.parts import details, document, paragraph, section, table, tiles, warning
from loadgen.results import BranchResult, RunResult
from loadgen.tables import milliseconds, missing_tail, percent, rate_text, stage_text

_MAX_BARS = 8
"""More series of bars than this could not be told apart."""
_CHOSEN = "For each label, the measurement with the highest rate."


def page(results: Sequence[RunResult], *, heading: str = "Load test") -> str:
    """Returns one self-contained HTML document, without scripts.

    Raises:
        ValueError: If there are no results.
    """
    if not results:
        raise ValueError("a report needs at least one result")
    entries = name_results(results)
    return document(
        heading,
        [
            paragraph(_subtitle(results), is_soft=True),
            _head_figures(results),
            _warnings(entries),
            _results(entries),
            section("Latency", cdf_chart([_curve(entry) for entry in entries], name="Latency", slo_ms=_slo_ms(results))),
            _parts(entries),
            _over_time(entries),
            _against_load(entries),
            _branches(entries),
            _batches(entries),
            _speculation(entries),
            _tails(entries),
            _errors(entries),
            _what_was_run(entries),
        ],
    )


def _subtitle(results: Sequence[RunResult]) -> str:
    first, last = min(result.started_at for result in results), max(result.started_at for result in results)
    number = f"{len(results)} measurements, " if len(results) > 1 else ""
    return f"{number}{first}" if first == last else f"{number}{first} to {last}"


def _head_figures(results: Sequence[RunResult]) -> str:
    if len(results) > 1:
        return ""
    (result,) = results
    in_time = "right" if result.slo_s is None else f"right within {1e3 * result.slo_s:g} ms"
    figures = [
        ("p50", f"{milliseconds(result.latency_ms.p50)} ms"),
        ("p99", f"{milliseconds(result.latency_ms.p99)} ms"),
        (in_time, f"{percent(result.goodput_ratio)} %"),
        ("answers a second", f"{result.throughput_rps:,.1f}"),
    ]
    return tiles(figures)


def _warnings(entries: Sequence[NamedResult]) -> str:
    lines = [f"{entry.name}: {entry.result.client_warning}" for entry in entries if entry.result.client_warning]
    return warning("The load generator, not the server, may have been the limit", lines)


_COLUMNS = (
    ("", "rate", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"),
    ("goodput %", "req/s", "requests", "errors", "wrong", "no answer"),
)


def _results(entries: Sequence[NamedResult]) -> str:
    rows: list[list[str]] = []
    for entry in entries:
        latency, counts = entry.result.latency_ms, entry.result.counts
        values = (latency.p50, latency.p90, latency.p99, latency.p999, latency.max)
        outcomes = (counts.planned, counts.failed, counts.wrong, counts.unanswered)
        goodput = [percent(entry.result.goodput_ratio), f"{entry.result.throughput_rps:,.1f}"]
        rows.append(
            [entry.name_beside_rate, rate_text(entry.result), *map(milliseconds, values), *goodput, *map("{:,}".format, outcomes)]
        )
    head = [*_COLUMNS[0], *_COLUMNS[1]]
    note = "Latency counts from the moment at which a request was due, whether or not it could be sent then."
    return section("Results", table(head, rows, bad=("errors", "wrong", "no answer")), paragraph(note, is_soft=True))


def _curve(entry: NamedResult) -> Curve:
    return Curve(name=entry.name, style=entry.style, histogram=entry.result.histogram)


def _parts(entries: Sequence[NamedResult]) -> str:
    """Returns the times of parts of streamed answers."""
    rows: list[list[str]] = []
    curves: dict[str, list[Curve]] = {"To the first part": [], "Between parts": []}
    for entry in entries:
        if (parts := entry.result.parts) is None:
            continue
        figures = [f"{parts.num_parts:,}", f"{parts.parts_per_s:,.1f}"]
        for name, times, histogram in (
            ("To the first part", parts.first_part_ms, parts.first_part_histogram),
            ("Between parts", parts.between_parts_ms, parts.between_parts_histogram),
        ):
            if times is not None:
                values = map(milliseconds, (times.p50, times.p90, times.p99, times.p999, times.max))
                rows.append([entry.name, name.lower(), *values, *figures])
                curves[name].append(Curve(name=entry.name, style=entry.style, histogram=histogram))
    head = ["", "time", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms", "parts", "parts/s"]
    charts = [section(name, cdf_chart(shown, name=name, slo_ms=None), level=3) for name, shown in curves.items() if shown]
    return section("Parts of streams", table(head, rows), *charts)


def _over_time(entries: Sequence[NamedResult]) -> str:
    known = [entry for entry in entries if entry.result.timeline is not None]
    shown = _highest_per_label(known)
    courses = [
        Course(name=entry.name, style=entry.style, timeline=entry.result.timeline)
        for entry in shown
        if entry.result.timeline is not None
    ]
    charts = course_charts(courses, slo_ms=_slo_ms([entry.result for entry in shown])) if courses else {}
    said = paragraph(_CHOSEN, is_soft=True) if len(shown) < len(known) else ""
    return section("Over time", said, *(section(name, chart, level=3) for name, chart in charts.items()))


def _slo_ms(results: Sequence[RunResult]) -> float | None:
    """Returns the objective, if all results share it."""
    objectives = {result.slo_s for result in results}
    slo_s = objectives.pop()
    return None if objectives or slo_s is None else 1e3 * slo_s


def _against_load(entries: Sequence[NamedResult]) -> str:
    lines: dict[str, list[NamedResult]] = {}
    for entry in entries:
        if entry.result.load.get("arrivals") not in ("ramp", "closed"):
            lines.setdefault(entry.result.label, []).append(entry)
    if all(len({entry.result.rate_rps for entry in members}) < 2 for members in lines.values()):
        return ""
    drawn = [
        LoadLine(
            name=label,
            style=style,
            points=[
                (measurement.result.rate_rps, measurement.result.latency_ms.p50, measurement.result.latency_ms.p99)
                for measurement in of_label
            ],
        )
        for style, (label, of_label) in enumerate(lines.items())
    ]
    chart = load_chart(drawn, name="Latency against load", slo_ms=_slo_ms([entry.result for entry in entries]))
    return section("Latency against load", chart)


def _branches(entries: Sequence[NamedResult]) -> str:
    rows = [_branch_row(entry, name, branch) for entry in entries for name, branch in sorted(entry.result.branches.items())]
    head = ["", "rate", "branch", "requests", "p50 ms", "p90 ms", "p99 ms", "max ms"]
    return section("By branch", table(head, rows))


def _branch_row(entry: NamedResult, name: str, branch: BranchResult) -> list[str]:
    latency = branch.latency_ms
    values = map(milliseconds, (latency.p50, latency.p90, latency.p99, latency.max))
    return [entry.name_beside_rate, rate_text(entry.result), name, f"{branch.num_requests:,}", *values]


def _batches(entries: Sequence[NamedResult]) -> str:
    shown = _highest_per_label(entries)
    programs = dict.fromkeys(program for entry in shown for program in entry.result.server.batch_sizes)
    charts: list[str] = []
    for program in programs:
        series = {entry.name: (entry.style, entry.result.server.batch_sizes.get(program, {})) for entry in shown}
        charts.append(section(program, batch_chart(program, series), level=3))
    devices = [
        [entry.name, *(_device(entry.result.server.device_ms_per_request.get(program)) for program in programs)]
        for entry in entries
        if entry.result.server.device_ms_per_request
    ]
    said = paragraph(_CHOSEN, is_soft=True) if len(shown) < len(entries) and any(charts) else ""
    return section("Batches", said, *charts, _device_times(devices, list(programs)))


def _device(value: float | None) -> str:
    return "" if value is None else milliseconds(value)


def _device_times(rows: Sequence[Sequence[str]], programs: Sequence[str]) -> str:
    return section("Device time per request, ms", table(["", *programs], rows), level=3) if rows else ""


def _highest_per_label(entries: Sequence[NamedResult]) -> Sequence[NamedResult]:
    """Returns as many measurements as bars can tell apart: for each label, the one with the highest rate."""
    highest: dict[str, NamedResult] = {}
    for entry in sorted(entries, key=lambda entry: entry.result.rate_rps):
        highest[entry.result.label] = entry
    return list(highest.values())[:_MAX_BARS]


def _speculation(entries: Sequence[NamedResult]) -> str:
    guessing = [entry for entry in entries if entry.result.server.speculation]
    shown = _highest_per_label(guessing)
    charts = speculation_charts({entry.name: (entry.style, entry.result.server.speculation) for entry in shown})
    return section("Speculation", paragraph(_CHOSEN, is_soft=True) if len(shown) < len(guessing) else "", *charts)


def _tails(entries: Sequence[NamedResult]) -> str:
    rows = [
        [entry.name, stage_text(each), milliseconds(each.slowest_ms), milliseconds(each.typical_ms), f"{each.num_caused:,}"]
        for entry in entries
        if (tail := entry.result.server.tail) is not None and not missing_tail(entry.result.server)
        for each in tail.stages
    ]
    head = ["", "stage", "slowest 1 %, ms", "typical, ms", "cause of"]
    unknown = [f"{entry.name}: no tail: {why}" for entry in entries if (why := missing_tail(entry.result.server))]
    if not rows and not unknown:
        return ""
    shown = [table(head, rows)] if rows else []
    return section("Where the slowest requests spent their time", *shown, *(paragraph(why, is_soft=True) for why in unknown))


def _errors(entries: Sequence[NamedResult]) -> str:
    rows = [
        [entry.name, error, f"{number:,}"]
        for entry in entries
        for error, number in sorted(entry.result.errors.items(), key=lambda found: -found[1])
    ]
    return section("Errors", table(["", "error", "requests"], rows, is_text=True))


def _what_was_run(entries: Sequence[NamedResult]) -> str:
    parts: list[str] = []
    for entry in entries:
        result = entry.result
        facts = {
            "target": _facts_text(result.target),
            "load": _facts_text(result.load),
            "started": result.started_at,
            "measured": f"{result.duration_s:g} s",
            "workers": f"{result.num_workers}, the busiest with {result.client_cpu_ratio:.0%} of a core",
            "sent late by": f"p50 {milliseconds(result.send_delay_ms.p50)} ms, p99 {milliseconds(result.send_delay_ms.p99)} ms",
            "machine": _facts_text(result.machine),
            "versions": _facts_text(result.versions),
            "commit": result.commit,
        }
        rows = [[name, value] for name, value in facts.items() if value]
        parts.append(section(entry.name, table(["", ""], rows, is_text=True), level=3))
    return details("What was run", *parts)


def _facts_text(facts: object) -> str:
    return (
        ", ".join(f"{name}: {value}" for name, value in facts.items() if value not in ("", None, {}, []))
        if isinstance(facts, dict)
        else str(facts)
    )
