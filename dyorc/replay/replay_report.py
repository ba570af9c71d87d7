"""What the replay of many histories has shown."""

import time
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from dyorc.replay.identities import complete
from dyorc.replay.replayer import ReplayedRequest, Replayer, UnreplayableError
from dyorc.replay.request_comparison import Comparison, compare
from dyorc.replay.request_selection import RequestSelection
from dyorc.telemetry.histories.history import RequestHistory
from dyorc.telemetry.histories.history_files import read_histories

MAX_EXAMPLES = 5
_NUM_REPEATS = 4
"""So many times a request that is different is replayed again. Of a coin that is tossed, one more toss shows half."""
_MAX_INTERRUPTED = 3
"""A version that computes without end on so many requests does it on the others, too, and each takes seconds."""


class Latency(msgspec.Struct, frozen=True):
    """Quantiles of latencies, in milliseconds."""

    p50_ms: float
    p99_ms: float


class ReplayReport(msgspec.Struct, kw_only=True):
    """A summary.

    Attributes:
        workflow: The one that was replayed.
        num_replayed: Requests.
        versions: How many of them each version had answered; if several have one name, since a server was started anew with other
            code, it has the digest of the code as well.
        num_same: Of which nothing is different.
        num_other_outcomes: With another outcome of a decision.
        num_other_calls: With other calls.
        num_other_orders: With the same effects in another order.
        num_other_answers: With another answer.
        answer: Where the first of these differs, and by how much.
        num_other_errors: That end with an error where there was none, or the other way, or with another error.
        errors: How they end, and how many requests do.
        num_diverged: That did not come to an end, since the version needs what no history has.
        num_nondeterministic: On which the version is not deterministic.
        num_not_replayed: Histories of the workflow that were not replayed, by the reason.
        num_of_others: Histories of other workflows.
        outcomes: How often each decision was taken otherwise: site, before and now.
        more_calls: Calls that the histories do not have, by program.
        fewer_calls: Calls that only the histories have, by program.
        missing: What the histories do not have, and how many requests end there.
        num_timed: Requests that came to an end, so that both latencies are known.
        recorded: Their latency, as recorded.
        expected: Their latency on the version.
        took_s: How long the replay took.
        examples: A few requests that are different.
        damaged: Lines of the files that are no histories, and why.
        stopped: Why further requests were not replayed; empty: all were.
    """

    workflow: str
    num_replayed: int = 0
    versions: dict[str, int] = {}
    num_same: int = 0
    num_other_outcomes: int = 0
    num_other_calls: int = 0
    num_other_orders: int = 0
    num_other_answers: int = 0
    answer: str = ""
    num_other_errors: int = 0
    errors: dict[str, int] = {}
    num_diverged: int = 0
    num_nondeterministic: int = 0
    num_not_replayed: dict[str, int] = {}
    num_of_others: int = 0
    outcomes: list[tuple[str, str, str, int]] = []
    more_calls: dict[str, int] = {}
    fewer_calls: dict[str, int] = {}
    missing: dict[str, int] = {}
    num_timed: int = 0
    recorded: Latency | None = None
    expected: Latency | None = None
    took_s: float = 0.0
    examples: list[Comparison] = []
    damaged: list[str] = []
    stopped: str = ""

    @property
    def num_different(self) -> int:
        """Requests with any difference."""
        return self.num_replayed - self.num_same

    @property
    def why_none(self) -> str:
        """Why no request was replayed."""
        reasons = [f"{number} because {reason}" for reason, number in self.num_not_replayed.items()]
        reasons += [f"{self.num_of_others} because they are of other workflows"] * bool(self.num_of_others)
        reasons += [f"{len(self.damaged)} lines because they are no histories"] * bool(self.damaged)
        return f"no recorded request of {self.workflow!r} was replayed: {'; '.join(reasons)}"


def replay_files(
    replayer: Replayer,
    path: Path,
    max_requests: int | None = None,
    *,
    tolerance: float = 0.0,
    max_examples: int = MAX_EXAMPLES,
    versions: Collection[str] = (),
    codes: Collection[str] | None = None,
) -> ReplayReport:
    """Replays the histories in a file or folder, and returns what came of it. See `replay_all`.

    Args:
        max_requests: Only so many of the newest requests that count.
        versions: Which count, with `codes`; see `RequestSelection`.

    Raises:
        ConfigurationError: If there are no histories.
    """
    damaged: list[str] = []
    selection = RequestSelection(replayer.name, versions, codes)
    histories = read_histories(path, max_requests, damaged.append, selection.wants)
    report = _replay(replayer, histories, selection, tolerance, max_examples)
    report.damaged = damaged
    return report


def replay_all(
    replayer: Replayer, histories: Iterable[RequestHistory], *, tolerance: float = 0.0, max_examples: int = MAX_EXAMPLES
) -> ReplayReport:
    """Replays histories, and returns what came of it.

    Args:
        tolerance: See `compare`.
        max_examples: How many different requests are named.
    """
    selection = RequestSelection(replayer.name)
    return _replay(replayer, filter(selection.wants, histories), selection, tolerance, max_examples)


def _replay(
    replayer: Replayer, histories: Iterable[RequestHistory], selection: RequestSelection, tolerance: float, max_examples: int
) -> ReplayReport:
    """Replays histories that `selection` wants; the others are counted there by the end."""
    started_s = time.perf_counter()
    report, comparisons = ReplayReport(workflow=replayer.name), list[Comparison]()
    refused: Counter[str] = Counter()
    versions: Counter[tuple[str, str]] = Counter()
    num_interrupted = 0
    with replayer:
        for history in histories:
            try:
                replayed = replayer.replay(history)
            except UnreplayableError as error:
                refused[str(error)] += 1
                continue
            comparison = compare(history, replayed, replayer.signature.outputs.tensors, tolerance)
            if replayed.lacks_value and not (comparison.outcomes or comparison.more_calls):
                refused[f"it needs {replayed.missing}"] += 1  # which says nothing of the version
                continue
            if not comparison.is_same:
                comparison = _repeated(replayer, history, replayed, comparison)
            comparisons.append(comparison)
            versions[history.version, history.code] += 1
            num_interrupted += replayed.is_interrupted and not comparison.is_same
            if num_interrupted == _MAX_INTERRUPTED:
                report.stopped = f"its workflow was interrupted on {num_interrupted} requests"
                break
    report.num_not_replayed = dict(refused.most_common()) | dict(selection.skipped.most_common())
    report.num_of_others = selection.num_of_others
    report.versions = _by_version(versions)
    _add_up(report, comparisons)
    others = [comparison for comparison in comparisons if not comparison.is_same]
    report.examples = others[:max_examples]
    report.took_s = round(time.perf_counter() - started_s, 3)
    return report


def _by_version(numbers: Counter[tuple[str, str]]) -> dict[str, int]:
    """Returns how many requests each version answered, by its name; if several have that name, with the digest of its code."""
    names = Counter(version for version, _ in numbers)
    return {
        version if names[version] == 1 else f"{version} (code {code or 'unknown'})": number
        for (version, code), number in numbers.most_common()
    }


def _repeated(replayer: Replayer, history: RequestHistory, first: ReplayedRequest, comparison: Comparison) -> Comparison:
    """Replays a request that is different again, decisions included. Returns its comparison, or one that says that the version
    is not deterministic."""
    if comparison.nondeterministic or first.is_interrupted or first.has_run_programs:  # programs may draw
        return comparison
    complete(first.history)
    for _ in range(_NUM_REPEATS):
        again = replayer.replay(history)
        change = compare(first.history, again, replayer.signature.outputs.tensors, 0.0)
        if again.missing == first.missing:
            change = msgspec.structs.replace(change, missing="")
        if not change.is_same:
            reason = f"workflow {replayer.name!r} is not deterministic; replayed again on the same results: {change.first()}"
            return Comparison(
                request_id=history.request_id, version=history.version, nondeterministic=reason, recorded_ms=history.duration_ms
            )
    return comparison


def _add_up(report: ReplayReport, comparisons: list[Comparison]) -> None:
    outcomes: Counter[tuple[str, str, str]] = Counter()
    more, fewer, missing, errors = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for comparison in comparisons:
        report.num_replayed += 1
        report.num_same += comparison.is_same
        report.num_other_outcomes += bool(comparison.outcomes)
        report.num_other_calls += bool(comparison.more_calls or comparison.fewer_calls)
        report.num_other_orders += bool(comparison.order)
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
        if comparison.error:
            errors[comparison.error] += 1
    report.outcomes = [(*outcome, number) for outcome, number in outcomes.most_common()]
    report.more_calls, report.fewer_calls, report.missing = dict(more), dict(fewer), dict(missing.most_common())
    report.errors = dict(errors.most_common())
    ended = [(each.recorded_ms, each.expected_ms) for each in comparisons if each.expected_ms is not None]
    report.num_timed = len(ended)
    if ended:
        report.recorded = _latency([recorded_ms for recorded_ms, _ in ended])
        report.expected = _latency([expected_ms for _, expected_ms in ended])


def _latency(durations_ms: list[float]) -> Latency:
    ordered = sorted(durations_ms)
    return Latency(round(ordered[len(ordered) // 2], 3), round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], 3))
