"""Draws the memory of a server over a long run."""

from collections.abc import Mapping, Sequence

from loadgen.report.frame import Frame
from loadgen.report.scales import linear
from loadgen.report.style import ALONE
from loadgen.report.svg import legend, line, picture

_WIDTH, _HEIGHT = 760.0, 220.0
_LEFT, _RIGHT, _BELOW = 70.0, 20.0, 50.0
_MIB = 2**20
_MAX_POINTS = 400

Points = Sequence[tuple[float, float]]
"""Minutes and bytes."""


def memory_picture(name: str, courses: Mapping[str, Points]) -> str:
    """Returns an SVG picture that is a file of its own, with a line for each course by its name."""
    head, head_px = legend([(course, style) for style, course in enumerate(courses)], _WIDTH, marks=True)
    minutes = [minute for points in courses.values() for minute, _ in points]
    sizes = [size / _MIB for points in courses.values() for _, size in points]
    frame = Frame(
        x=linear(max(minutes, default=1.0)), y=linear(max(sizes, default=1.0)), left=_LEFT, top=head_px + 20,
        width=_WIDTH - _LEFT - _RIGHT, height=_HEIGHT, x_name="minutes", y_name="MiB",
    )  # fmt: skip
    drawn = [head, frame.axes()]
    for style, (course, points) in enumerate(courses.items()):
        shown = points[:: len(points) // _MAX_POINTS + 1]
        drawn.append(line([frame.point(minute, size / _MIB) for minute, size in shown], style, label=course))
    ends = {course: (points[0][1] / _MIB, points[-1][1] / _MIB) for course, points in courses.items()}
    described = "; ".join(f"{course}: {first:.1f} to {last:.1f} MiB" for course, (first, last) in ends.items())
    return picture(name, described, drawn, _WIDTH, frame.top + _HEIGHT + _BELOW, style=ALONE)
