"""The path of one request through its workflow's graph, derived from its story.

The story says what each call and decision read, and under which outcome it was reached. Each of them gets an edge: from the
decision before it if it begins a branch, from the calls whose results it reads if it continues one, else from the request's
input. Unread results and ends of branches lead to the answer. Calls that were not needed are left out. Plain objects, no I/O.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from dyorc.engine.request_trace import CallTrace, DecisionTrace, RequestTrace


class PathNode(NamedTuple):
    """A node of a workflow's graph."""

    kind: str
    name: str


class PathEdge(NamedTuple):
    """An edge; out of a decision, `label` is the outcome."""

    source: PathNode
    target: PathNode
    label: str = ""


INPUT = PathNode("input", "input")
ANSWER = PathNode("answer", "answer")


class EdgeUse(msgspec.Struct, eq=True):
    """How a request used an edge.

    Attributes:
        number: How many times.
        num_sources: From how many executions of its source.
        num_guessed: How many times the call at its end was asked for before it was certain.
    """

    number: float = 0
    num_sources: float = 0
    num_guessed: float = 0


class RequestPath(NamedTuple):
    """A request's path: how many times each node was executed, and how each edge was used."""

    nodes: dict[PathNode, float]
    edges: dict[PathEdge, EdgeUse]


Label: TypeAlias = Callable[[str, str], str]
"""Returns the label of a decision's outcome: the outcome, or a common one for outcomes beyond the limit."""
_Start: TypeAlias = tuple[PathNode, int, str]
"""Where an edge begins: the node, which execution of it, and the label."""

_FROM_INPUT: _Start = (INPUT, 0, "")


def path_of_request(story: RequestTrace, label: Label) -> RequestPath:
    """Returns a request's path. Cost: about 10 us, and 3 for each call or decision."""
    return _Walk(story, label).path()


class _Walk:
    """Reads one story."""

    def __init__(self, story: RequestTrace, label: Label) -> None:
        self._is_answered = story.is_answered
        self._label = label
        self._decisions = story.decisions
        self._is_taken = _find_taken(story.decisions)
        self._calls = {call.call_id: call for call in story.calls if _has_run(call) and self._is_real(call.decision, call.branch)}
        self._spans = _number_forest(story.decisions)
        self._ends = self._find_ends()
        self._ends_reading = self._index_ends()
        self._read: set[int] = set()
        self._joined: set[int] = set()
        self._path = RequestPath({INPUT: 1.0}, {})
        self._sources: dict[PathEdge, set[int]] = {}

    def path(self) -> RequestPath:
        for call in self._calls.values():
            self._arrive(_program(call), self._starts(call), call.is_guess)
        for decision in self._taken_decisions():
            self._arrive(_site(decision), self._starts(decision), is_guess=False)
        if self._is_answered:
            self._arrive(ANSWER, self._loose_ends() or [_FROM_INPUT], is_guess=False)
        for edge, sources in self._sources.items():
            self._path.edges[edge].num_sources = len(sources)
        return self._path

    def _arrive(self, node: PathNode, starts: Sequence[_Start], is_guess: bool) -> None:
        nodes, edges = self._path
        nodes[node] = nodes.get(node, 0) + 1
        for source, execution, label in starts:
            edge = PathEdge(source, node, label)
            use = edges.setdefault(edge, EdgeUse())
            use.number += 1
            use.num_guessed += is_guess
            self._sources.setdefault(edge, set()).add(execution)

    def _starts(self, reached: CallTrace | DecisionTrace) -> Sequence[_Start]:
        """Returns where the edges to a call or decision begin."""
        self._read.update(reached.sources)
        sources = [self._calls[number] for number in reached.sources if number in self._calls]
        within = [call for call in sources if self._is_below(call, reached.decision)]
        if within:
            return list(dict.fromkeys(self._way_out(call, reached.depth) for call in within))
        return [_FROM_INPUT if reached.decision < 0 else self._branch(reached.decision)]

    def _way_out(self, call: CallTrace, depth: int) -> _Start:
        """Returns where a call's result comes from, for a reader at this depth: if the workflow that the call is part of has
        returned it after a decision, that is where."""
        if call.depth > depth:
            for number in self._ends_reading.get(call.call_id, ()):
                if self._decisions[number].depth > depth:
                    self._joined.add(number)
                    return self._branch(number)
        return _program(call), call.call_id, ""

    def _loose_ends(self) -> list[_Start]:
        """Returns the parts of the answer: results that no call or decision reads, and branches in which nothing follows."""
        unread = [call for call in self._calls.values() if call.call_id not in self._read and call.outcome == "done"]
        ends = [(_program(call), call.call_id, "") for call in unread]
        return ends + [self._branch(number) for number in self._ends if number not in self._joined]

    def _branch(self, number: int) -> _Start:
        decision = self._decisions[number]
        return _site(decision), number, self._label(decision.site, decision.outcome)

    def _find_ends(self) -> list[int]:
        """Returns the decisions after which nothing follows in their branch."""
        followed = {call.decision for call in self._calls.values()}
        followed.update(decision.decision for decision in self._taken_decisions())
        return [number for number, is_taken in enumerate(self._is_taken) if is_taken and number not in followed]

    def _taken_decisions(self) -> Iterator[DecisionTrace]:
        return (decision for decision, is_taken in zip(self._decisions, self._is_taken, strict=True) if is_taken)

    def _is_real(self, number: int, branch: str) -> bool:
        return number < 0 or (self._is_taken[number] and self._decisions[number].outcome == branch)

    def _index_ends(self) -> dict[int, list[int]]:
        """Returns the ends that read each call, in order."""
        reading: defaultdict[int, list[int]] = defaultdict(list)
        for number in self._ends:
            for call_id in self._decisions[number].sources:
                reading[call_id].append(number)
        return reading

    def _is_below(self, call: CallTrace, number: int) -> bool:
        """Returns whether a call was made in the branch of a decision, or in one further down. Each was taken, so it has one."""
        return number < 0 or (call.decision >= 0 and self._spans[call.decision].start in self._spans[number])


def _number_forest(decisions: Sequence[DecisionTrace]) -> list[range]:
    """Returns a range of numbers for each decision: the first is its own, the others belong to the decisions below it."""
    sizes = [1] * len(decisions)
    for number in reversed(range(len(decisions))):  # each decision comes after the one above it
        if decisions[number].decision >= 0:
            sizes[decisions[number].decision] += sizes[number]
    ranges: list[range] = []
    next_first, next_below = 0, list[int]()
    for decision, size in zip(decisions, sizes, strict=True):
        if decision.decision < 0:
            first, next_first = next_first, next_first + size
        else:
            first = next_below[decision.decision]
            next_below[decision.decision] += size
        ranges.append(range(first, first + size))
        next_below.append(first + 1)
    return ranges


def _find_taken(decisions: Sequence[DecisionTrace]) -> list[bool]:
    """Returns which decisions were really reached, not only by a wrong guess, and taken."""
    is_taken: list[bool] = []
    for decision in decisions:
        is_real = decision.decision < 0 or (
            is_taken[decision.decision] and decisions[decision.decision].outcome == decision.branch
        )
        is_taken.append(is_real and bool(decision.outcome))
    return is_taken


def _has_run(call: CallTrace) -> bool:
    return not call.is_repeat and call.outcome in ("done", "failed")


def _program(call: CallTrace) -> PathNode:
    return PathNode("program", call.program)


def _site(decision: DecisionTrace) -> PathNode:
    return PathNode("decision", decision.site)
