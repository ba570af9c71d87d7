"""Results as aligned text, for a terminal."""

from collections.abc import Sequence

from loadgen.results import PartsResult, Quantiles, RunResult, ServerFigures, Tail, TailStage

_MAX_STAGES = 3
_MIN_TAIL = 4
"""Of fewer requests, the slowest are among the typical, the middle half."""

_HEAD = ("", "rate", "p50 ms", "p90 ms", "p99 ms", "max ms", "goodput %", "req/s", "errors", "wrong", "unanswered")


def run_table(results: Sequence[RunResult]) -> str:
    """Returns a row for each result, with one for each of its branches and its parts' times below it, and all warnings and errors
    at the end."""
    rows: list[Sequence[str]] = [_HEAD]
    for result in results:
        rows.append(_row(result))
        rows += _part_rows(result.parts)
        rows += [_branch_row(name, branch.num_requests, branch.latency_ms) for name, branch in sorted(result.branches.items())]
    return "\n".join([align_columns(rows), *_remarks(results)])


def align_columns(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows with columns as wide as they need to be, so that piped output is not cut. The first is aligned left, the
    others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def milliseconds(value: float) -> str:
    """Returns milliseconds with three significant digits, or as a whole number: 0.34, 12.5, 1,204."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def percent(ratio: float) -> str:
    """Returns a ratio in per cent, never rounded up to 100: 99.97 is not 100."""
    rounded = f"{100 * ratio:.1f}"
    return "99.9" if rounded == "100.0" and ratio < 1 else rounded


def rate_text(result: RunResult) -> str:
    """Returns the load in words: "200/s", both ends of a ramp, "8 clients" for a closed loop, or the trace's own rate."""
    load = result.load
    match load.get("arrivals"):
        case "closed":
            return f"{load.get('num_clients', 1)} clients"
        case "ramp":
            return f"{load.get('start_rps', 0):g}–{load.get('rate_rps', 0):g}/s"
        case "trace" if not load.get("rate_rps"):
            return f"trace, {_rate(result.rate_rps)}"
        case _:
            return _rate(result.rate_rps)


def _rate(rps: float) -> str:
    return f"{rps:,.1f}/s".replace(".0/", "/") if rps >= 100 else f"{rps:.3g}/s"


def _row(result: RunResult) -> Sequence[str]:
    counts = result.counts
    return (
        result.label,
        rate_text(result),
        *_latencies(result.latency_ms),
        percent(result.goodput_ratio),
        f"{result.throughput_rps:,.1f}",
        str(counts.failed),
        str(counts.wrong),
        str(counts.unanswered),
    )


def _branch_row(name: str, num_requests: int, latency_ms: Quantiles) -> Sequence[str]:
    return (f"  {name} ({num_requests:,})", "", *_latencies(latency_ms), "", "", "", "", "")


def _part_rows(parts: PartsResult | None) -> list[Sequence[str]]:
    if parts is None:
        return []
    shown = [("  to the first part", parts.first_part_ms)]
    if parts.between_parts_ms is not None:
        shown.append((f"  between parts ({parts.num_parts:,}, {parts.parts_per_s:,.1f}/s)", parts.between_parts_ms))
    return [(name, "", *_latencies(times), "", "", "", "", "") for name, times in shown]


def _latencies(quantiles: Quantiles) -> list[str]:
    return [milliseconds(value) for value in (quantiles.p50, quantiles.p90, quantiles.p99, quantiles.max)]


def tail_text(figures: ServerFigures) -> str:
    """Returns where the slowest requests spent more time than typical ones, in one line: at most three stages.

    Where that is unknown, the line says why; it is empty if nobody asked.
    """
    if why := missing_tail(figures):
        return f"no tail: {why}"
    tail = figures.tail
    if tail is None:
        return ""
    stages = ", ".join(
        f"{stage_text(each)} {milliseconds(each.slowest_ms)} ms, typically {milliseconds(each.typical_ms)}"
        for each in _longer_stages(tail)[:_MAX_STAGES]
    )
    return f"{_slowest_of(tail)}: {stages}"


def stage_text(stage: TailStage) -> str:
    """Returns the name of a stage, with its program if it has one."""
    return f"{stage.stage} of {stage.program}" if stage.program else stage.stage


def missing_tail(figures: ServerFigures) -> str:
    """Returns why nothing can be said of the slowest requests; empty if something can, or nobody asked."""
    tail = figures.tail
    if tail is None:
        return figures.no_tail
    if not tail.num_slowest:
        return "the server remembers no request of the measured time"
    if tail.num_requests < _MIN_TAIL:
        return f"the server remembers {tail.num_requests} requests of the measured time, too few to compare"
    return "" if _longer_stages(tail) else f"{_slowest_of(tail)}, took no longer than typical ones in any stage"


def _longer_stages(tail: Tail) -> list[TailStage]:
    return [each for each in tail.stages if each.slowest_ms > each.typical_ms]


def _slowest_of(tail: Tail) -> str:
    return f"the slowest {tail.num_slowest:,} of {tail.num_requests:,} recorded, from {milliseconds(tail.from_ms or 0.0)} ms"


def _remarks(results: Sequence[RunResult]) -> list[str]:
    remarks: list[str] = []
    for result in results:
        most = sorted(result.errors.items(), key=lambda entry: -entry[1])[:5]
        remarks += [f"{result.label}: {number} x {error}" for error, number in most]
        if tail := tail_text(result.server):
            remarks.append(f"{result.label}: {tail}")
        if result.client_warning:
            remarks.append(f"warning: {result.label}: {result.client_warning}")
    return remarks
