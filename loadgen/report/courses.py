"""Charts over time: latency, rates, waiting requests and errors."""

from collections.abc import Sequence
from dataclasses import dataclass

from loadgen.report.charts import WIDTH
from loadgen.report.frame import Frame
from loadgen.report.scales import Scale, linear, logarithmic, short
from loadgen.report.svg import legend, line, marker, picture
from loadgen.results import Timeline

_LEFT = 84.0
_RIGHT = 20.0
_PLOT_PX = 170.0
_BELOW = 50.0
_DASHES = "7 3"

Values = Sequence[float | None]
"""A value for each step; None leaves a gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A measurement over time."""

    name: str
    style: int
    timeline: Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One figure over time."""

    course: Course
    figure: str
    values: Values
    dashes: str = ""


def course_charts(courses: Sequence[Course], *, slo_ms: float | None = None) -> dict[str, str]:
    """Returns up to four charts by name; the one of errors only if there were any. A step has the same place in all of them."""
    latency = [_Line(course=course, figure="p50", values=course.timeline.p50_ms) for course in courses]
    latency += [_Line(course=course, figure="p99", values=course.timeline.p99_ms, dashes=_DASHES) for course in courses]
    rates = [_Line(course=course, figure="answered", values=_per_s(course, course.timeline.num_answered)) for course in courses]
    rates += [
        _Line(course=course, figure="due", values=_per_s(course, course.timeline.num_due), dashes=_DASHES) for course in courses
    ]
    waiting = [_Line(course=course, figure="waiting", values=course.timeline.max_waiting) for course in courses]
    bad = [_Line(course=course, figure="bad", values=_per_s(course, course.timeline.num_bad)) for course in courses]
    drawn = {
        "Latency over time": _chart(latency, "Latency over time", "ms: p50 –, p99 - -", is_logarithmic=True, slo_ms=slo_ms),
        "Rate over time": _chart(rates, "Rate over time", "per s: answered –, due - -"),
        "Requests without an answer": _chart(waiting, "Requests without an answer", "most at once"),
        "Errors over time": _chart(bad, "Errors over time", "per s, by when due") if _any(bad) else "",
    }
    return {name: chart for name, chart in drawn.items() if chart}


def _per_s(course: Course, counts: Sequence[int]) -> list[float]:
    edges = course.timeline.edges_s
    return [count / (end - begin) for count, begin, end in zip(counts, edges, edges[1:], strict=False)]


def _any(lines: Sequence[_Line]) -> bool:
    return any(value for entry in lines for value in entry.values)


def _chart(lines: Sequence[_Line], name: str, y_name: str, *, is_logarithmic: bool = False, slo_ms: float | None = None) -> str:
    values = [value for entry in lines for value in entry.values if value is not None]
    if not values:
        return ""
    courses = {entry.course.name: entry.course for entry in lines}.values()
    head, head_px = legend([(course.name, course.style) for course in courses], WIDTH)
    frame = Frame(
        x=linear(max(course.timeline.edges_s[-1] for course in courses)),
        y=_logarithmic([*values, slo_ms or 0.0]) if is_logarithmic else linear(max(values)),
        left=_LEFT,
        top=head_px + 20,
        width=WIDTH - _LEFT - _RIGHT,
        height=_PLOT_PX,
        x_name="seconds",
        y_name=y_name,
    )
    drawn = [head, frame.axes(), *(_draw_line(entry, frame) for entry in lines)]
    drawn.append(frame.across(slo_ms, f"SLO {short(slo_ms)} ms") if slo_ms else "")
    described = "; ".join(
        f"{entry.course.name}, {entry.figure}: at most {max(_without_gaps(entry.values)):.4g}" for entry in lines
    )
    return picture(name, described, drawn, WIDTH, frame.top + _PLOT_PX + _BELOW)


def _logarithmic(values: Sequence[float]) -> Scale:
    above = [value for value in values if value > 0]
    return logarithmic(min(above, default=1.0), max(above, default=1.0))


def _without_gaps(values: Values) -> list[float]:
    return [value for value in values if value is not None] or [0.0]


def _draw_line(entry: _Line, frame: Frame) -> str:
    """Draws a line through the middles of the steps, broken where there is no value. A value between two gaps becomes a mark."""
    edges, label = entry.course.timeline.edges_s, f"{entry.course.name}: {entry.figure}"
    drawn = ""
    piece: list[tuple[float, float]] = []
    for at, value in enumerate([*entry.values, None]):
        if value is not None:
            piece.append(frame.point((edges[at] + edges[at + 1]) / 2, value))
            continue
        if len(piece) > 1:
            drawn += line(piece, entry.course.style, dashes=entry.dashes, label=label)
        elif piece:
            drawn += marker(*piece[0], entry.course.style, label)
        piece = []
    return drawn
