"""Tries many cases in one mode, and counts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from tests.random_workflows import engines
from tests.random_workflows.cases import Case, Failure, Outcome
from tests.random_workflows.comparison import differences
from tests.random_workflows.grammar import generate
from tests.random_workflows.plain import Unusable, evaluate
from tests.random_workflows.served import run_served
from tests.random_workflows.shrinking import shrink

HERE = {"run": engines.run_each, "local": engines.run_together}
SERVED = {"cell": True, "ray": False}
MODES = (*HERE, *SERVED)
_MAX_AT_ONCE = 40
"""Candidates that a server runs together when a case is made small."""


@dataclass(frozen=True)
class Expected:
    """A case, and what plain Python makes of it."""

    case: Case
    outcome: Outcome


@dataclass
class Tally:
    """How many cases were tried in a mode, and which of them differed, each with what did."""

    counts: Counter[str] = field(default_factory=Counter[str])
    different: list[tuple[Expected, list[str]]] = field(default_factory=list[tuple[Expected, list[str]]])

    def add(self, expected: Expected, outcome: Outcome) -> list[str]:
        """Compares, and returns what differs."""
        self.counts.update(
            workflows=1, requests=len(expected.case.requests), decisions=expected.outcome.counts["decisions"],
            effects=expected.outcome.effects.total(),
        )  # fmt: skip
        self.counts.update(outcome.counts)
        lines = differences(expected.outcome, outcome)
        if lines:
            self.different.append((expected, lines))
        return lines

    def report(self) -> dict[str, int]:
        """Returns the numbers as plain values."""
        names = ("workflows", "requests", "decisions", "guesses_followed", "guesses_wrong", "effects")
        return {name: self.counts[name] for name in names} | {"different": len(self.different)}


def generated(seed: int, number: int, num_requests: int = 8) -> list[Expected]:
    """Returns so many cases that mean something, from a seed on."""
    cases: list[Expected] = []
    for each in count(seed):
        if len(cases) == number:
            break
        cases += expected_of(generate(each, num_requests))
    return cases


def expected_of(case: Case) -> list[Expected]:
    """Returns a case with what plain Python makes of it, if it means something."""
    try:
        return [Expected(case, evaluate(case))]
    except Unusable:
        return []


def outcomes(mode: str, cases: Sequence[Expected], seed: int, chunk: int) -> Iterator[tuple[Expected, Outcome]]:
    """Runs cases and yields each with its outcome. A server runs a chunk of them at a time."""
    for start in range(0, len(cases), chunk):
        some = cases[start : start + chunk]
        if mode in HERE:
            yield from [(each, _run_here(mode, each.case, seed)) for each in some]
            continue
        num_effects = sum(each.outcome.effects.total() for each in some)
        by_name = run_served([each.case for each in some], num_effects, seed, in_process=SERVED[mode])
        yield from [(each, by_name[each.case.name]) for each in some]


def _run_here(mode: str, case: Case, seed: int) -> Outcome:
    """Runs a case in this process. If an engine raises, that is the answer of all requests."""
    try:
        return HERE[mode](case, seed)
    except Exception as error:
        return Outcome({request.ticket: Failure(type(error).__name__, str(error)) for request in case.requests})


def make_small(case: Case, mode: str, seed: int) -> tuple[Case, str]:
    """Returns a small case that differs as this one does, and in which mode: in this process, where that shows it, too."""

    def find_differing(candidates: Sequence[Case]) -> int | None:
        # Each with a name and tickets of its own, so that one server can run them all.
        renamed = [each.renamed(f"small{at}", 1000 * at) for at, each in enumerate(candidates)]
        usable = [each for one in renamed for each in expected_of(one)]
        for each, outcome in outcomes(mode, usable, seed, len(usable) or 1):
            if differences(each.outcome, outcome):
                return renamed.index(each.case)
        return None

    if mode in HERE:
        return shrink(case, find_differing), mode
    (expected,) = expected_of(case)
    if differences(expected.outcome, _run_here("local", case, seed)):
        return make_small(case, "local", seed)
    return shrink(case, find_differing, max_rounds=8, num_at_once=_MAX_AT_ONCE), mode
