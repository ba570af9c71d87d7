"""Line charts: how long answers take, and how that grows with the load."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from hdrh.histogram import HdrHistogram

from loadgen.report.frame import Frame
from loadgen.report.scales import linear, logarithmic, nines, short
from loadgen.report.svg import dash, legend, line, marker, picture

WIDTH = 960.0
_LEFT = 84.0
_RIGHT = 20.0
_PLOT_PX = 320.0
_BELOW = 50.0
_MARKED = (0.5, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """All latencies of a measurement.

    Attributes:
        style: Selects its colour, mark and dashes; the same in all pictures of a page.
        histogram: An HDR histogram of microseconds, in its text form.
    """

    name: str
    style: int
    histogram: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLine:
    """Latencies at several rates: (requests per second, p50, p99 in milliseconds). A rate may occur several times."""

    name: str
    style: int
    points: Sequence[tuple[float, float, float]]


def shares(histogram: str) -> tuple[list[tuple[float, float]], int]:
    """Returns a histogram as points (milliseconds, share of the requests that took no longer), and its number of requests."""
    decoded = HdrHistogram.decode(histogram)
    counts = np.ctypeslib.as_array(decoded.counts)
    recorded = np.flatnonzero(counts).tolist()
    if not recorded:
        return [], 0
    seen = np.cumsum(counts[recorded])
    values = [decoded.get_highest_equivalent_value(decoded.get_value_from_index(at)) / 1000 for at in recorded]
    return [(values[0], 0.0), *zip(values, (seen / seen[-1]).tolist(), strict=True)], int(seen[-1])


def cdf_chart(curves: Sequence[Curve], *, name: str, slo_ms: float | None = None) -> str:
    """Returns a chart of the share of requests that took no longer than each latency: a line per measurement, marked at p50 and
    p99. Empty without data."""
    distributions = [(curve, *shares(curve.histogram)) for curve in curves if curve.histogram]
    distributions = [(curve, points, num) for curve, points, num in distributions if num]
    if not distributions:
        return ""
    lowest = min(max(points[0][0], 1e-3) for _, points, _ in distributions)
    highest = max(points[-1][0] for _, points, _ in distributions)
    head, head_px = legend([(curve.name, curve.style) for curve, _, _ in distributions], WIDTH, dashes=True)
    frame = Frame(
        x=logarithmic(lowest, max(highest, slo_ms or 0.0)),
        y=nines(max(num for _, _, num in distributions)),
        left=_LEFT,
        top=head_px + 20,
        width=WIDTH - _LEFT - _RIGHT,
        height=_PLOT_PX,
        x_name="latency, ms",
        y_name="share of requests",
    )
    drawn = [head, frame.axes(), *(_curve(curve, points, frame) for curve, points, _ in distributions)]
    drawn.append(frame.upright(slo_ms, f"SLO {short(slo_ms)} ms") if slo_ms else "")
    described = "; ".join(
        f"{curve.name}: p50 {_at(points, 0.5):.3g} ms, p99 {_at(points, 0.99):.3g} ms" for curve, points, _ in distributions
    )
    return picture(name, described, drawn, WIDTH, frame.top + _PLOT_PX + _BELOW)


def load_chart(lines: Sequence[LoadLine], *, name: str, slo_ms: float | None = None) -> str:
    """Returns a chart of latency against the rate of requests: p50 as a line, p99 dashed. Empty without data."""
    lines = [entry for entry in lines if entry.points]
    if not lines:
        return ""
    values = [ms for entry in lines for _, *both in entry.points for ms in both if ms > 0]
    values += [slo_ms] if slo_ms else []
    head, head_px = legend([(entry.name, entry.style) for entry in lines], WIDTH)
    frame = Frame(
        x=linear(max(rate for entry in lines for rate, _, _ in entry.points)),
        y=logarithmic(min(values, default=1.0), max(values, default=1.0)),
        left=_LEFT,
        top=head_px + 20,
        width=WIDTH - _LEFT - _RIGHT,
        height=_PLOT_PX,
        x_name="requests a second",
        y_name="latency, ms: p50 –, p99 - -",
    )
    drawn = [head, frame.axes(), *(_load_line(entry, frame) for entry in lines)]
    drawn.append(frame.across(slo_ms, f"SLO {short(slo_ms)} ms") if slo_ms else "")
    described = "; ".join(
        f"{entry.name}: " + ", ".join(f"{rate:.4g}/s {p50:.3g} and {p99:.3g} ms" for rate, p50, p99 in entry.points)
        for entry in lines
    )
    return picture(name, described, drawn, WIDTH, frame.top + _PLOT_PX + _BELOW)


def _curve(curve: Curve, points: Sequence[tuple[float, float]], frame: Frame) -> str:
    shown = [frame.point(ms, share) for ms, share in points if share <= frame.y.high]
    last_ms = next((ms for ms, share in points if share > frame.y.high), None)
    if last_ms is not None:
        shown.append(frame.point(last_ms, frame.y.high))
    drawn = line(_thin_out(shown), curve.style, dashes=dash(curve.style), label=curve.name)
    for share in _MARKED:
        ms = _at(points, share)
        drawn += marker(*frame.point(ms, share), curve.style, f"{curve.name}: p{100 * share:g} {ms:.4g} ms")
    return drawn


def _thin_out(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Leaves out points that nobody could see: those less than half a pixel from the one before."""
    kept = list(points[:1])
    for x, y in points[1:]:
        if abs(x - kept[-1][0]) + abs(y - kept[-1][1]) >= 0.5:
            kept.append((x, y))
    if points and kept[-1] != points[-1]:
        kept.append(points[-1])
    return kept


def _at(points: Sequence[tuple[float, float]], share: float) -> float:
    return next((ms for ms, reached in points if reached >= share), points[-1][0])


def _load_line(entry: LoadLine, frame: Frame) -> str:
    """Draws every measurement as a mark, and a line through the medians at each rate."""
    drawn = ""
    rates = sorted({point[0] for point in entry.points})
    for at, dashes in ((1, ""), (2, "7 3")):
        quantile = ("p50", "p99")[at - 1]
        middles = [(rate, median(point[at] for point in entry.points if point[0] == rate)) for rate in rates]
        drawn += line([frame.point(*middle) for middle in middles], entry.style, dashes=dashes, label=f"{entry.name}: {quantile}")
        for point in sorted(entry.points):
            said = f"{entry.name}: {quantile} {point[at]:.4g} ms at {point[0]:.4g} requests/s"
            drawn += marker(*frame.point(point[0], point[at]), entry.style, said)
    return drawn
