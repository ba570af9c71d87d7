"""What the replay of many histories has shown."""

import time
from collections import Counter
from collections.abc import Iterable

import msgspec

from dyorc.replay.replayer import Replayer, UnreplayableError
from dyorc.replay.request_comparison import Comparison, compare
from dyorc.telemetry.histories.history import RequestHistory

MAX_EXAMPLES = 5


class Latency(msgspec.Struct, frozen=True):
    """Quantiles of latencies, in milliseconds."""

    p50_ms: float
    p99_ms: float


class ReplayReport(msgspec.Struct, kw_only=True):
    """A summary.

    Attributes:
        workflow: The one that was replayed.
        num_replayed: Requests.
        num_same: Of which nothing is different.
        num_other_outcomes: With another outcome of a decision.
        num_other_calls: With other calls.
        num_other_answers: With another answer.
        answer: Where the first of these differs, and by how much.
        num_other_errors: That end with an error where there was none, or the other way, or with another error.
        num_diverged: That did not come to an end, since the version needs what no history has.
        num_nondeterministic: On which the version is not deterministic.
        num_not_replayed: Histories of the workflow that cannot be replayed, by the reason.
        num_of_others: Histories of other workflows.
        outcomes: How often each decision was taken otherwise: site, before and now.
        more_calls: Calls that the histories do not have, by program.
        fewer_calls: Calls that only the histories have, by program.
        missing: What the histories do not have, and how many requests end there.
        recorded: Latency of the requests that came to an end, as recorded.
        expected: Latency of the same requests on the version.
        took_s: How long the replay took.
        examples: A few requests that are different.
    """

    workflow: str
    num_replayed: int = 0
    num_same: int = 0
    num_other_outcomes: int = 0
    num_other_calls: int = 0
    num_other_answers: int = 0
    answer: str = ""
    num_other_errors: int = 0
    num_diverged: int = 0
    num_nondeterministic: int = 0
    num_not_replayed: dict[str, int] = {}
    num_of_others: int = 0
    outcomes: list[tuple[str, str, str, int]] = []
    more_calls: dict[str, int] = {}
    fewer_calls: dict[str, int] = {}
    missing: dict[str, int] = {}
    recorded: Latency | None = None
    expected: Latency | None = None
    took_s: float = 0.0
    examples: list[Comparison] = []

    @property
    def num_different(self) -> int:
        """Requests with any difference."""
        return self.num_replayed - self.num_same

    @property
    def why_none(self) -> str:
        """Why no request was replayed."""
        reasons = [f"{number} because {reason}" for reason, number in self.num_not_replayed.items()]
        reasons += [f"{self.num_of_others} because they are of other workflows"] * bool(self.num_of_others)
        return f"no recorded request of {self.workflow!r} was replayed: {'; '.join(reasons)}"


def replay_all(
    replayer: Replayer, histories: Iterable[RequestHistory], *, tolerance: float = 0.0, max_examples: int = MAX_EXAMPLES
) -> ReplayReport:
    """Replays histories, and returns what came of it.

    Args:
        tolerance: See `compare`.
        max_examples: How many different requests are named.
    """
    started_s = time.perf_counter()
    report, comparisons = ReplayReport(workflow=replayer.name), list[Comparison]()
    refused: Counter[str] = Counter()
    for history in histories:
        if history.workflow != replayer.name:
            report.num_of_others += 1
            continue
        try:
            replayed = replayer.replay(history)
        except UnreplayableError as error:
            refused[str(error)] += 1
            continue
        comparison = compare(history, replayed, replayer.signature.outputs.tensors, tolerance)
        if replayed.lacks_value and not (comparison.outcomes or comparison.more_calls):
            refused[f"it needs {replayed.missing}"] += 1  # which says nothing of the version
        else:
            comparisons.append(comparison)
    report.num_not_replayed = dict(refused.most_common())
    _add_up(report, comparisons)
    others = [comparison for comparison in comparisons if not comparison.is_same]
    report.examples = others[:max_examples]
    report.took_s = round(time.perf_counter() - started_s, 3)
    return report


def _add_up(report: ReplayReport, comparisons: list[Comparison]) -> None:
    outcomes: Counter[tuple[str, str, str]] = Counter()
    more, fewer, missing = Counter[str](), Counter[str](), Counter[str]()
    for comparison in comparisons:
        report.num_replayed += 1
        report.num_same += comparison.is_same
        report.num_other_outcomes += bool(comparison.outcomes)
        report.num_other_calls += bool(comparison.more_calls or comparison.fewer_calls)
        report.num_other_answers += bool(comparison.answer)
        report.answer = report.answer or comparison.answer
        report.num_other_errors += bool(comparison.error)
        report.num_diverged += bool(comparison.missing)
        report.num_nondeterministic += bool(comparison.nondeterministic)
        outcomes.update([(other.site, other.before, other.now) for other in comparison.outcomes])
        more.update(comparison.more_calls)
        fewer.update(comparison.fewer_calls)
        if comparison.missing:
            missing[comparison.missing] += 1
    report.outcomes = [(*outcome, number) for outcome, number in outcomes.most_common()]
    report.more_calls, report.fewer_calls, report.missing = dict(more), dict(fewer), dict(missing.most_common())
    ended = [(each.recorded_ms, each.expected_ms) for each in comparisons if each.expected_ms is not None]
    if ended:
        report.recorded = _latency([recorded_ms for recorded_ms, _ in ended])
        report.expected = _latency([expected_ms for _, expected_ms in ended])


def _latency(durations_ms: list[float]) -> Latency:
    ordered = sorted(durations_ms)
    return Latency(round(ordered[len(ordered) // 2], 3), round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], 3))
