"""Stories made by hand."""

from dyorc.engine.request_trace import CallTrace, DecisionTrace, RequestTrace
from dyorc.telemetry.graph_weights import GraphWeights
from dyorc.telemetry.request_paths import PathEdge, PathNode


class Tale:
    """A story that a test tells.

    Args:
        is_answered: Whether it ends well.
    """

    def __init__(self, *, is_answered: bool = True) -> None:
        self.story = RequestTrace(1, 0)
        self.story.is_answered = is_answered
        self._num_calls = 0

    def call(
        self, program: str, *sources: int, under: tuple[int, str] = (-1, ""), depth: int = 0, outcome: str = "done",
        is_guess: bool = False,
    ) -> int:  # fmt: skip
        """Adds a call that reads others, in the branch of a decision; returns its number."""
        self._num_calls += 7  # other requests ask for calls, too
        self.story.calls.append(
            CallTrace(self._num_calls, program, 0, sources, *under, depth=depth, outcome=outcome, is_guess=is_guess)
        )
        return self._num_calls

    def decide(self, site: str, outcome: str, *sources: int, under: tuple[int, str] = (-1, ""), depth: int = 0) -> int:
        """Adds a decision that reads calls, and its outcome; returns its number."""
        self.story.add_decision(DecisionTrace(site, 0, sources, *under, outcome=outcome, depth=depth))
        return len(self.story.decisions) - 1


def edges_of(learned: GraphWeights) -> dict[tuple[str, ...], float]:
    """Returns how often each edge is used per request, by the names of its ends and its label, if it has one."""
    return {_names(edge): round(one.number / learned.weight, 6) for edge, one in learned.edges.items()}


def _names(edge: PathEdge) -> tuple[str, ...]:
    ends = edge.source.name, edge.target.name
    return (*ends, edge.label) if edge.label else ends


def number_of(learned: GraphWeights, kind: str, name: str) -> float:
    """Returns how often a node is executed per request."""
    return learned.nodes.get(PathNode(kind, name), 0.0) / learned.weight
