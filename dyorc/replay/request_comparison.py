"""What is different between a recorded request and its replay on another version."""

import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from dyorc.authoring.spec import TensorSpec
from dyorc.config import ShadowConfig
from dyorc.core.counts import count
from dyorc.errors import NondeterministicWorkflowError
from dyorc.gateway.answer_comparison import difference_of
from dyorc.replay.certain_course import CertainCourse
from dyorc.replay.identities import Identities
from dyorc.replay.replayer import ReplayedRequest
from dyorc.telemetry.histories.history import HistoryDecision, RequestHistory, TensorSource

_PLACES = re.compile(
    r"""( (?<=\()[^()\n]*\.py | (?<=")[^"\n]*\.py" | [^\s()"]*\.py | <[^<>\n]*> )(,\ line\ |:)\d+
    | line\ \d+ | \ at\ 0x[0-9a-f]+""",
    re.VERBOSE,
)
"""What differs between two processes, or two versions, that do the same: places in files, and addresses."""
_MAX_PROGRAMS = 8
"""Whose calls a sentence counts."""
_MAX_CHARACTERS = 200
"""Of an outcome that is shown."""
_NUM_BEFORE = 40
"""Characters before the first difference that are shown of a long outcome."""


def short_outcomes(before: str, now: str) -> tuple[str, str]:
    """Returns two outcomes as people should see them. Those of decisions about lists may be long: then it is what stands around
    the first difference, and how many characters of each are left out."""
    if max(len(before), len(now)) <= _MAX_CHARACTERS:
        return before, now
    differ = (at for at, (a, b) in enumerate(zip(before, now, strict=False)) if a != b)
    skipped = max(0, next(differ, min(len(before), len(now))) - _NUM_BEFORE)
    return _cut(before, skipped), _cut(now, skipped)


def _cut(text: str, skipped: int) -> str:
    shown = text[skipped : skipped + _MAX_CHARACTERS]
    if len(shown) == len(text):
        return text
    ends = "..." if skipped + len(shown) < len(text) else ""
    return f"{'...' if skipped else ''}{shown}{ends} ({count(len(text) - len(shown), 'character')} left out)"


class OtherOutcome(msgspec.Struct, frozen=True):
    """A decision that was taken otherwise.

    Attributes:
        site: Where it stands in the version's code.
        before: The recorded outcome, as text.
        now: That of the version.
    """

    site: str
    before: str
    now: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What is different. All empty: nothing.

    Attributes:
        request_id: As its client knows it.
        version: The one that answered it.
        outcomes: Decisions about the same value with another outcome.
        more_calls: How many calls the version makes that the history does not have, by program.
        fewer_calls: How many calls of the history it does not make, by program; unknown, so empty, if it did not come to an end.
        order: Which effects come in another order.
        answer: Where the answer differs first, and by how much.
        error: How it ends, if one of both ends with an error.
        missing: Why the replay did not come to an end.
        nondeterministic: Why the version is not deterministic.
        recorded_ms: How long the request took.
        expected_ms: How long the version would take; None if that is unknown.
    """

    request_id: str
    version: str = ""
    outcomes: tuple[OtherOutcome, ...] = ()
    more_calls: dict[str, int] = {}
    fewer_calls: dict[str, int] = {}
    order: str = ""
    answer: str = ""
    error: str = ""
    missing: str = ""
    nondeterministic: str = ""
    recorded_ms: float = 0.0
    expected_ms: float | None = None

    @property
    def is_same(self) -> bool:
        """Whether nothing is different."""
        is_other = self.outcomes or self.more_calls or self.fewer_calls or self.order or self.answer or self.error
        return not (is_other or self.missing or self.nondeterministic)

    def sentence(self) -> str:
        """Returns the request, the version that answered it, and what is different first."""
        return f"request {self.request_id} of version {self.version}: {self.first()}"

    def first(self) -> str:
        """Returns the first difference on the way as a sentence, the programs whose calls are others, and how the request ends if
        that is with another error. Without these, where the answer differs; empty if nothing is different."""
        return "; ".join(filter(None, (self._first_on_the_way(), self._other_calls(), self.order, self.error))) or self.answer

    def _first_on_the_way(self) -> str:
        if self.nondeterministic:
            return self.nondeterministic
        for outcome in self.outcomes[:1]:
            before, now = short_outcomes(outcome.before, outcome.now)
            return f"decision at {outcome.site}: it was {before}, it is {now}"
        return f"the replay ends at {self.missing}" if self.missing else ""

    def _other_calls(self) -> str:
        calls = [f"{number} more of {program!r}" for program, number in self.more_calls.items()]
        calls += [f"{number} fewer of {program!r}" for program, number in self.fewer_calls.items()]
        if len(calls) > _MAX_PROGRAMS:
            calls[_MAX_PROGRAMS:] = [f"others of {len(calls) - _MAX_PROGRAMS} further programs"]
        return f"calls: {', '.join(calls)}" if calls else ""


def compare(recorded: RequestHistory, replayed: ReplayedRequest, specs: Sequence[TensorSpec], tolerance: float) -> Comparison:
    """Returns what is different.

    Args:
        specs: The outputs of the version.
        tolerance: Floats of two answers are the same if they differ by no more than this part of the first, and a thousandth of
            this more, for what is near 0.
    """
    before = Identities(recorded)
    now = Identities(replayed.history, before)
    if replayed.history.error[:1] == (NondeterministicWorkflowError.code,):
        return Comparison(
            request_id=recorded.request_id, version=recorded.version, nondeterministic=replayed.history.error[1],
            recorded_ms=recorded.duration_ms,
        )  # fmt: skip
    if replayed.is_refused:
        error = _other_error(recorded, replayed.history)
        return Comparison(request_id=recorded.request_id, version=recorded.version, error=error, recorded_ms=recorded.duration_ms)
    old = CertainCourse(recorded, before, replayed.history, now)
    new = CertainCourse(replayed.history, now, recorded, before)
    programs = {before.of_call(number): call.program for number, call in enumerate(recorded.calls)}
    programs |= {now.of_call(number): call.program for number, call in enumerate(replayed.history.calls)}
    more, fewer = _by_program(old.without(new.calls()), programs), _by_program(new.without(old.calls()), programs)
    is_over = not replayed.missing
    partial = Comparison(
        request_id=recorded.request_id,
        version=recorded.version,
        outcomes=_other_outcomes(old.decisions(), new.decisions(), before, now),
        more_calls=more,
        fewer_calls=fewer if is_over else {},
        order=_other_order(recorded, replayed.history, before, now),
        error=_other_error(recorded, replayed.history) if is_over else "",
        answer=_Answers(before, now, specs, tolerance).difference(recorded, replayed.history) if is_over else "",
        missing=replayed.missing,
        recorded_ms=recorded.duration_ms,
    )
    if not is_over:
        return partial
    has_other_course = more or fewer
    return msgspec.structs.replace(
        partial, expected_ms=replayed.history.duration_ms if has_other_course else recorded.duration_ms
    )


def _other_order(recorded: RequestHistory, replayed: RequestHistory, before: Identities, now: Identities) -> str:
    """Returns which effects come in another order, if they are the same."""
    old = [before.of_call(number) for number, call in enumerate(recorded.calls) if call.is_effect]
    effects = [(now.of_call(number), call.program) for number, call in enumerate(replayed.calls) if call.is_effect]
    new = [identity for identity, _ in effects]
    if old == new or Counter(old) != Counter(new):
        return ""
    at = next(at for at, (was, is_now) in enumerate(zip(old, new, strict=True)) if was != is_now)
    programs = dict(effects)
    return f"effects in another order: {programs[new[at]]!r} comes before {programs[old[at]]!r}"


def _by_program(calls: Counter[str], programs: dict[str, str]) -> dict[str, int]:
    numbers: Counter[str] = Counter()
    for identity, number in calls.items():
        numbers[programs[identity]] += number
    return dict(sorted(numbers.items()))


def _other_outcomes(
    old: Iterable[HistoryDecision], new: Iterable[HistoryDecision], before: Identities, now: Identities
) -> tuple[OtherOutcome, ...]:
    """Returns decisions about the same value with another outcome: the first about it in one history is compared with the first
    in the other, and so on."""
    recorded: dict[tuple[str, ...], deque[str]] = {}
    for decision in old:
        subject = (decision.kind, *[before.of(source) for source in decision.subject])
        recorded.setdefault(subject, deque()).append(decision.outcome)
    others: list[OtherOutcome] = []
    for decision in new:
        outcomes = recorded.get((decision.kind, *[now.of(source) for source in decision.subject]))
        if outcomes and _unlike(was := outcomes.popleft(), decision.outcome):
            others.append(OtherOutcome(decision.site, was, decision.outcome))
    return tuple(others)


def _unlike(text: str, other: str) -> bool:
    """Returns whether two texts differ in more than the places in files and the addresses that they name."""
    return _PLACES.sub("", text) != _PLACES.sub("", other)


def _other_error(recorded: RequestHistory, replayed: RequestHistory) -> str:
    if not recorded.error and not replayed.error:
        return ""
    if recorded.error and replayed.error and recorded.error[0] == replayed.error[0]:
        return "" if not _unlike(recorded.error[1], replayed.error[1]) else f"it fails otherwise: {replayed.error[1]}"
    was = f"failed ({recorded.error[1]})" if recorded.error else "was answered"
    return f"it {was}, and now it {f'fails: {replayed.error[1]}' if replayed.error else 'is answered'}"


@dataclass(frozen=True, slots=True)
class _Answers:
    """Compares answers: their tensors by their identities, and by their values where these are known."""

    before: Identities
    now: Identities
    specs: Sequence[TensorSpec]
    tolerance: float

    def difference(self, recorded: RequestHistory, replayed: RequestHistory) -> str:
        """Returns where the answer differs first, and by how much; empty if it is the same, or there is none."""
        names = tuple([spec.name for spec in self.specs])
        if recorded.outputs and recorded.outputs != names:
            return f"the outputs are {list(names)}, they were {list(recorded.outputs)}"
        if (recorded.parts is None) != (replayed.parts is None):
            return f"the answer comes {'at once' if replayed.parts is None else 'in parts'}, it came otherwise"
        if recorded.parts is not None and replayed.parts is not None:
            text = self._of_parts(recorded.parts, replayed.parts)
            num_before, num_now = len(recorded.parts), len(replayed.parts)
            if text or num_before == num_now or recorded.error != replayed.error:
                return text
            return f"the answer has {num_now} parts, it had {num_before}"
        if recorded.error or replayed.error:
            return ""
        return self._of_outputs(recorded.answer, replayed.answer)

    def _of_parts(self, old: Sequence[Sequence[TensorSource]], new: Sequence[Sequence[TensorSource]]) -> str:
        for index, (was, is_now) in enumerate(zip(old, new, strict=False)):
            if text := self._of_outputs(was, is_now):
                return f"part {index}: {text}"
        return ""

    def _of_outputs(self, old: Sequence[TensorSource], new: Sequence[TensorSource]) -> str:
        if len(old) != len(new):
            return f"the answer has {len(new)} outputs, it had {len(old)}"
        for spec, was, is_now in zip(self.specs, old, new, strict=True):
            if text := self._of_output(spec, was, is_now):
                return text
        return ""

    def _of_output(self, spec: TensorSpec, was: TensorSource, new: TensorSource) -> str:
        if self.before.of(was) == self.now.of(new):
            return ""
        old_array, new_array = self.before.array(was), self.now.array(new)
        if old_array is None or new_array is None:
            return f"output {spec.name!r} is another tensor, whose values are not in the history"
        config = ShadowConfig(relative_tolerance=self.tolerance, absolute_tolerance=self.tolerance / 1000)
        return difference_of([spec], [old_array], [new_array], config, shows_values=True)
