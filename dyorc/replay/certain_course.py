"""What a request did for certain, apart from what depends on how fast things were.

A workflow that nobody needs any longer is ended on its way, one that yields runs ahead of those who read it, and a call that
reads a stream may be ended anywhere. How far each comes is a matter of time, so it is no difference between two versions.
"""

from collections import Counter
from collections.abc import Iterator

from dyorc.replay.identities import Identities, base_of, is_over
from dyorc.telemetry.histories.history import ROOT, HistoryCall, HistoryDecision, RequestHistory


class CertainCourse:
    """The certain calls and decisions of one of two histories that are compared.

    Args:
        other, others: The other one, whose runs of workflows may be cut where this one's are not.
    """

    def __init__(self, history: RequestHistory, identities: Identities, other: RequestHistory, others: Identities) -> None:
        self._history = history
        self._identities = identities
        self._unended_of_other = _unended_readers(other, others)
        cut = _cut(history, identities) | _cut(other, others)
        self._is_cut: list[bool] = []
        for number, run in enumerate(history.nested):
            self._is_cut.append((run.caller != ROOT and self._is_cut[run.caller]) or identities.of_nested(number) in cut)

    def decisions(self) -> Iterator[HistoryDecision]:
        """Yields the decisions, in order."""
        for decision in self._history.decisions:
            if not self._is_on_the_way(decision):
                yield decision

    def calls(self) -> Counter[str]:
        """Returns how often each call was made."""
        sure: Counter[str] = Counter()
        unsure: set[int] = set()
        """Calls whose results may be missing, here or in the other history, since nothing needed them."""
        for number, call in enumerate(self._history.calls):
            is_unended = bool(call.streams) and not is_over(call)
            has_cut_input = any(self._is_cut[run] for run in call.results) or any(each.call in unsure for each in call.arguments)
            identity = self._identities.of_call(number)
            if self._is_on_the_way(call) or has_cut_input or is_unended:
                unsure.add(number)
                continue
            sure[identity] += 1
            if call.streams and self._unended_of_other[base_of(identity)]:
                unsure.add(number)
        return sure

    def _is_on_the_way(self, entry: HistoryCall | HistoryDecision) -> bool:
        """Returns whether something was done ahead of readers, or in a run that was cut, here or in the other history."""
        return entry.is_ahead or (entry.workflow != ROOT and self._is_cut[entry.workflow])

    def every_call(self) -> Counter[str]:
        """Returns how often each call was made, certain or not."""
        return Counter(self._identities.of_call(number) for number in range(len(self._history.calls)))

    def without(self, calls: Counter[str]) -> Counter[str]:
        """Returns calls of the other history that are not among the calls of this one. A reader that was ended on its way here
        may be any that has the same arguments, whatever it has read."""
        left = calls - self.every_call()
        unended = _unended_readers(self._history, self._identities)
        for identity, number in left.items():
            num_alike = min(number, unended[base_of(identity)])
            left[identity] -= num_alike
            unended[base_of(identity)] -= num_alike
        return +left


def _cut(history: RequestHistory, identities: Identities) -> set[str]:
    """Returns which runs of workflows were ended on their way."""
    return {identities.of_nested(number) for number, run in enumerate(history.nested) if run.is_cut}


def _unended_readers(history: RequestHistory, identities: Identities) -> Counter[str]:
    """Returns calls that were ended while they read streams, as far as they are known without these."""
    calls = enumerate(history.calls)
    return Counter(base_of(identities.of_call(number)) for number, call in calls if call.streams and not is_over(call))
