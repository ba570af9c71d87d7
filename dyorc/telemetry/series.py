"""The recent past of a process's programs and workflows, for a page that has just been opened: once a second, a few numbers each.

The last 10 minutes are kept second by second, the last 24 hours minute by minute, in arrays that never grow: 65 KB for a program,
41 KB for a workflow; and of a workflow, the last 10 s of its histogram, another 30 KB. On the event loop's thread.
"""

import math
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import add

import msgspec

from dyorc.engine.estimators import LATENCY_BOUNDS_NS
from dyorc.telemetry.levels import Levels, ProgramLevels, WorkflowLevels, combine

WINDOW_S = 10
"""The seconds that quantiles cover: a shorter window has too few requests for a 99th percentile."""


class RecentCounts:
    """The growth of a histogram in the last `WINDOW_S` samples, taken once a second."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[Sequence[int]] = deque(maxlen=WINDOW_S + 1)

    def sample(self, counts: Sequence[int]) -> list[int]:
        """Adds the counts of now, and returns how much they have grown in the window, or since they began again at 0, as those of
        another leader do."""
        if self._samples and any(now < before for now, before in zip(counts, self._samples[-1], strict=True)):
            self._samples.clear()
            self._samples.append([0] * len(counts))
        self._samples.append(counts)
        return [now - before for now, before in zip(counts, self._samples[0], strict=True)]


def quantile(bounds: Sequence[int], counts: Sequence[int], part: float) -> float | None:
    """Returns the value below which this part of all values lies, as if they were spread evenly over their buckets.

    Args:
        bounds: The upper bounds of all buckets but the last, whose values count as its lower bound.
        counts: The values in each bucket.

    Returns:
        None if there are no values.
    """
    rank = part * sum(counts)
    if not rank:
        return None
    lower = 0
    for bound, count in zip(bounds, counts, strict=False):
        if count and rank <= count:
            return lower + (bound - lower) * rank / count
        rank -= count
        lower = bound
    return float(lower)


def quantile_ms(bounds_ns: Sequence[int], counts: Sequence[int], part: float) -> float | None:
    """Returns the same of durations, in milliseconds."""
    duration_ns = quantile(bounds_ns, counts, part)
    return None if duration_ns is None else round(duration_ns / 1e6, 3)


NUM_SECONDS = 600
NUM_MINUTES = 1440
_MINUTE_S = 60
MAX_WINDOW_S = NUM_MINUTES * _MINUTE_S
_RATE_WINDOW_S = 5
"""A rate is the mean over as many seconds: long enough to be read, short enough to be called now."""
_MIN_ELAPSED_S = 0.5
"""A few requests in a millisecond are no rate. Rows count alike in means, so none may cover much less time than a second."""

PROGRAM_COLUMNS = (
    "calls_per_s", "forecast_per_s", "num_queued", "num_running", "num_warm", "num_parked", "num_starting", "num_wanted",
)  # fmt: skip
WORKFLOW_COLUMNS = ("requests_per_s", "failed_per_s", "in_flight", "p50_ms", "p99_ms")


class SeriesWindow(msgspec.Struct, kw_only=True):
    """A stretch of the past.

    Attributes:
        from_s: When it begins (Unix time).
        step_s: From one value to the next.
        values: By column; None where nothing was measured.
    """

    from_s: int
    step_s: int
    values: dict[str, list[float | None]]

    def plus(self, other: "SeriesWindow") -> "SeriesWindow":
        """Returns the windows of two processes together: sums, but the larger latency. Both have to end about now."""
        from_s = max(self.from_s, other.from_s)
        mine, others = (_shift(span, (from_s - span.from_s) // self.step_s) for span in (self, other))
        values = {
            name: [combine(*pair, max if name.endswith("_ms") else add) for pair in zip(mine[name], others[name], strict=True)]
            for name in mine
        }
        return SeriesWindow(from_s=from_s, step_s=self.step_s, values=values)


class Ring:
    """Rows of numbers at whole steps of time; the latest `length` of them.

    A skipped step has NaN in its row. Cost: in proportion to the new row, not to the rows that are kept.
    """

    __slots__ = ("_last", "_length", "_rows", "_width")

    def __init__(self, width: int, length: int) -> None:
        self._width = width
        self._length = length
        self._rows = array("f", [math.nan]) * (width * length)
        self._last = -1

    def put(self, step: int, row: Sequence[float]) -> None:
        """Sets the row of a step. One that is older than the latest, because the clock was set back, is put in its place."""
        width = self._width
        gap = step - self._last - 1
        if self._last >= 0 and gap > 0:
            for skipped in range(step - min(gap, self._length), step):
                self._set(skipped, array("f", repeat(math.nan, width)))
        self._set(step, array("f", row))
        self._last = step

    def _set(self, step: int, row: "array[float]") -> None:
        start = step % self._length * self._width
        self._rows[start : start + self._width] = row

    def columns(self, number: int) -> list[list[float]]:
        """Returns the columns of the latest rows, the oldest first."""
        width, length, rows = self._width, self._length, self._rows
        steps = range(self._last - min(number, length) + 1, self._last + 1)
        return [[rows[step % length * width + column] for step in steps] for column in range(width)]

    def means(self, number: int) -> list[float]:
        """Returns the means over the latest rows, without skipped steps; NaN if all were skipped."""
        return [_mean(column) for column in self.columns(number)]

    @property
    def last(self) -> int:
        """The latest step; -1 before the first."""
        return self._last


class Series:
    """One thing over time."""

    __slots__ = ("_columns", "_minutes", "_seconds")

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._seconds = Ring(len(columns), NUM_SECONDS)
        self._minutes = Ring(len(columns), NUM_MINUTES)

    def put(self, second: int, row: Sequence[float]) -> None:
        """Adds the values of a second (Unix time)."""
        last = self._seconds.last
        if last >= 0 and second // _MINUTE_S > last // _MINUTE_S:
            self._minutes.put(last // _MINUTE_S, self._seconds.means(last % _MINUTE_S + 1))
        self._seconds.put(second, row)

    @property
    def last(self) -> int:
        """The latest second (Unix time)."""
        return self._seconds.last

    def now(self) -> dict[str, float]:
        """Returns each column's mean over the last few seconds; 0 where nothing was measured."""
        means = self._seconds.means(_RATE_WINDOW_S)
        return {name: 0.0 if math.isnan(mean) else mean for name, mean in zip(self._columns, means, strict=True)}

    def span(self, window_s: int) -> SeriesWindow:
        """Returns the past: second by second if that is kept for long enough, else minute by minute."""
        step_s = 1 if window_s <= NUM_SECONDS else _MINUTE_S
        ring = self._seconds if step_s == 1 else self._minutes
        columns = ring.columns(-(-window_s // step_s))
        values = {name: [_plain(value) for value in column] for name, column in zip(self._columns, columns, strict=True)}
        return SeriesWindow(from_s=(ring.last - len(columns[0]) + 1) * step_s, step_s=step_s, values=values)


class History:
    """The past of everything in a process.

    What has been gone for `NUM_SECONDS`, such as a version of a workflow, is forgotten; but not while there is nothing at all,
    since no orchestrator answers.

    Attributes:
        programs: By name.
        workflows: By name.
        latencies: Of each workflow, the requests answered lately by how long they took, in buckets.
    """

    def __init__(self) -> None:
        self.programs: dict[str, Series] = {}
        self.workflows: dict[str, Series] = {}
        self.latencies: dict[str, list[int]] = {}
        self._recent: dict[str, RecentCounts] = {}
        self._before = Levels()
        self._before_ns = 0
        self._second = -1

    def sample(self, levels: Levels, second: int, now_ns: int) -> None:
        """Adds how everything is now. Rates are what was counted since the last sample.

        A sample of the same second as the last, or soon after it, is left out: the next covers its time, too. So every count is
        in exactly one row.

        Args:
            second: Unix time, in whole seconds.
            now_ns: The monotonic clock.
        """
        elapsed_s = (now_ns - self._before_ns) / 1e9 if self._before_ns else math.inf
        if second == self._second or elapsed_s < _MIN_ELAPSED_S:
            return
        before, self._before, self._before_ns, self._second = self._before, levels, now_ns, second
        for name, program in levels.programs.items():
            row = _program_row(program, before.programs.get(name, program), elapsed_s)
            _series(self.programs, name, PROGRAM_COLUMNS).put(second, row)
        for name, workflow in levels.workflows.items():
            recent = self._recent_latency(name, workflow)
            row = _workflow_row(workflow, before.workflows.get(name, WorkflowLevels()), elapsed_s, recent)
            _series(self.workflows, name, WORKFLOW_COLUMNS).put(second, row)
        if levels.programs:
            self._forget_before(second - NUM_SECONDS)

    def _forget_before(self, second: int) -> None:
        for by_name in (self.programs, self.workflows):
            for name in [name for name, series in by_name.items() if series.last < second]:
                del by_name[name]
                if by_name is self.workflows:
                    del self.latencies[name], self._recent[name]

    def _recent_latency(self, name: str, workflow: WorkflowLevels) -> list[int]:
        counts = workflow.latency or [0] * (len(LATENCY_BOUNDS_NS) + 1)
        recent = self._recent.get(name)
        if recent is None:
            recent = self._recent[name] = RecentCounts()
            recent.sample([0] * len(counts))
        quantiles = self.latencies[name] = recent.sample(counts)
        return quantiles

    def rates(self) -> dict[str, dict[str, dict[str, float]]]:
        """Returns the rates of now: of ``programs`` and ``workflows``, by name and column. What has left has none."""
        return {
            "programs": self._rates_of(self.programs, "calls_per_s"),
            "workflows": self._rates_of(self.workflows, "requests_per_s", "failed_per_s"),
        }

    def _rates_of(self, by_name: Mapping[str, Series], *columns: str) -> dict[str, dict[str, float]]:
        present = {name: series.now() for name, series in by_name.items() if series.last == self._second}
        return {name: {column: now[column] for column in columns} for name, now in present.items()}


def _series(by_name: dict[str, Series], name: str, columns: Sequence[str]) -> Series:
    series = by_name.get(name)
    if series is None:
        series = by_name[name] = Series(columns)
    return series


def _growth(now: int, before: int) -> int:
    """Returns how much a count has grown. A smaller one than before has begun again at 0: another process leads."""
    return now - before if now >= before else now


def _program_row(now: ProgramLevels, before: ProgramLevels, elapsed_s: float) -> Sequence[float]:
    return (
        _growth(now.num_calls, before.num_calls) / elapsed_s,
        math.nan if now.forecast_per_s is None else now.forecast_per_s,
        now.num_queued, now.num_running, now.num_warm, now.num_parked, now.num_starting, now.num_wanted,
    )  # fmt: skip


def _workflow_row(now: WorkflowLevels, before: WorkflowLevels, elapsed_s: float, recent: list[int]) -> Sequence[float]:
    median_ms, late_ms = (quantile_ms(LATENCY_BOUNDS_NS, recent, part) for part in (0.5, 0.99))
    return (
        _growth(now.num_ended, before.num_ended) / elapsed_s,
        _growth(now.num_failed, before.num_failed) / elapsed_s,
        now.in_flight,
        math.nan if median_ms is None else median_ms,
        math.nan if late_ms is None else late_ms,
    )


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)


def _shift(span: SeriesWindow, number: int) -> dict[str, list[float | None]]:
    """Returns the values as they would be had the span begun `number` steps later."""
    if not number:
        return span.values
    return {name: column[number:] + [None] * min(number, len(column)) for name, column in span.values.items()}
