"""Bar charts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from loadgen.report.charts import WIDTH
from loadgen.report.frame import Frame
from loadgen.report.scales import Scale, linear, short
from loadgen.report.svg import bar, legend, picture, shorten, text, text_px

_LEFT = 84.0
_RIGHT = 20.0
_PLOT_PX = 200.0
_BELOW = 50.0
_MAX_NUMBERS = 16
"""With more groups than this, numbers above the bars would overlap."""
_GAP = 0.24
"""The fraction of a group's width that is left free between two groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarSeries:
    """Bars of one colour.

    Attributes:
        values: One for each group; None where there is none, shown as `missing`.
    """

    name: str
    style: int
    values: Sequence[float | None]
    missing: str = ""


def bar_chart(
    groups: Sequence[str],
    series: Sequence[BarSeries],
    *,
    name: str,
    y_name: str,
    x_name: str = "",
    unit: str = "",
    scale: Scale | None = None,
    reference: float | None = None,
    numbered: Collection[str] = (),
    css: str = "",
) -> str:
    """Returns a chart of bars in groups.

    Args:
        groups: The groups' names, from left to right.
        unit: Follows each shown number, e.g. " %".
        scale: The vertical scale; from 0 by default.
        reference: The value at which to draw a horizontal line.
        numbered: The series with numbers above their bars, where there is room.
        css: Styles, for a picture that is a file of its own.
    """
    series = [entry for entry in series if any(value is not None for value in entry.values)]
    if not series or not groups:
        return ""
    head, head_px = legend([(entry.name, entry.style) for entry in series], WIDTH, marks=False)
    highest = max(value for entry in series for value in entry.values if value is not None)
    frame = Frame(
        x=None,
        y=scale or linear(highest),
        left=_LEFT,
        top=head_px + 16,
        width=WIDTH - _LEFT - _RIGHT,
        height=_PLOT_PX,
        x_name=x_name,
        y_name=y_name,
    )
    drawn = [head, frame.axes()]
    group_px = frame.width / len(groups)
    for at, group in enumerate(groups):
        left = frame.left + at * group_px
        label = shorten(group, max(int(group_px / text_px("x")), 3))
        drawn.append(text(label, left + group_px / 2, frame.top + frame.height + 18, anchor="middle"))
        drawn += _group(series, at, group, left + _GAP / 2 * group_px, (1 - _GAP) * group_px, frame, unit, numbered)
    drawn.append("" if reference is None else frame.across(reference, ""))
    described = "; ".join(
        f"{entry.name}: "
        + ", ".join(f"{group} {_value_text(value, entry, unit)}" for group, value in zip(groups, entry.values, strict=True))
        for entry in series
    )
    below = _BELOW if x_name else _BELOW - 20
    return picture(name, described, drawn, WIDTH, frame.top + _PLOT_PX + below, style=css)


def _group(
    series: Sequence[BarSeries],
    at: int,
    group: str,
    left: float,
    width: float,
    frame: Frame,
    unit: str,
    numbered: Collection[str],
) -> list[str]:
    drawn: list[str] = []
    bar_px = width / len(series)
    bottom = frame.top + frame.height
    for number, entry in enumerate(series):
        value, x = entry.values[at], left + number * bar_px
        said = _value_text(value, entry, unit)
        if value is not None:
            top = frame.height_of(value)
            drawn.append(bar(x, top, max(bar_px - 1, 1), max(bottom - top, 0), entry.style, f"{group}, {entry.name}: {said}"))
        if value is None and entry.missing:
            drawn.append(text(entry.missing, x + bar_px / 2, bottom - 4, anchor="middle", class_="tiny"))
        elif value is not None and entry.name in numbered:
            drawn.append(text(said, x + bar_px / 2, frame.height_of(value) - 3, anchor="middle", class_="tiny"))
    return drawn


def _value_text(value: float | None, entry: BarSeries, unit: str) -> str:
    return (entry.missing or "none") if value is None else f"{short(value)}{unit}"


_SIZES = tuple((2**power // 2 + 1, 2**power) for power in range(9))
"""Returns the ranges of batch sizes that share a bar: 1, 2, 3-4, 5-8, ..."""


def size_shares(sizes: Mapping[str, int]) -> list[float | None]:
    """Returns which percentage of all calls ran in batches of each range of sizes, up to the highest that occurs."""
    calls = {int(size): int(size) * number for size, number in sizes.items() if int(size) > 0 and number > 0}
    total = sum(calls.values())
    if not total:
        return []
    percentages: list[float | None] = [
        100 * sum(num for size, num in calls.items() if low <= size <= high) / total for low, high in _SIZES
    ]
    largest = max(calls)
    return percentages[: next((at + 1 for at, (_, high) in enumerate(_SIZES) if largest <= high), len(_SIZES))]


def batch_chart(program: str, series: Mapping[str, tuple[int, Mapping[str, int]]]) -> str:
    """Returns a chart of the batches in which a program's calls ran. Each name has its style and its batches by size."""
    shares = {name: (style, size_shares(sizes)) for name, (style, sizes) in series.items()}
    num_ranges = max((len(values) for _, values in shares.values()), default=0)
    bars = [
        BarSeries(name=name, style=style, values=[*values, *([0.0] * (num_ranges - len(values)))])
        for name, (style, values) in shares.items()
        if values
    ]
    groups = [str(high) if low == high else f"{low}–{high}" for low, high in _SIZES[:num_ranges]]
    return bar_chart(
        groups,
        bars,
        name=f"Batches of {program}",
        y_name="calls",
        x_name=f"size of the batch of {program} in which a call ran",
        unit=" %",
        scale=linear(100, label=lambda share: f"{share:g} %"),
    )


def speculation_charts(series: Mapping[str, tuple[int, Mapping[str, float]]]) -> list[str]:
    """Returns charts of guesses. Each name has its style and its figures; figures whose names end in "_s" are seconds, all others
    counts.

    Systems that guessed nothing are left out, and so are charts without bars.
    """
    series = {name: (style, values) for name, (style, values) in series.items() if any(values.values())}
    figures = dict.fromkeys(figure for _, values in series.values() for figure in values)
    times = [figure for figure in figures if figure.endswith("_s")]
    counts = [figure for figure in figures if not figure.endswith("_s")]
    charts: list[str] = []
    for y_name, chosen in (("count", counts), ("seconds", times)):
        bars = [
            BarSeries(name=name, style=style, values=[values.get(figure) for figure in chosen])
            for name, (style, values) in series.items()
            if any(values.get(figure) for figure in chosen)
        ]
        groups = [figure.removeprefix("num_").removesuffix("_s") for figure in chosen]
        is_roomy = len(bars) * len(groups) <= _MAX_NUMBERS
        numbered = [entry.name for entry in bars] if is_roomy else []
        charts.append(bar_chart(groups, bars, name=f"Speculation, {y_name}", y_name=y_name, numbered=numbered))
    return [chart for chart in charts if chart]
