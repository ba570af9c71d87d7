"""The journal of a task: what its runs asked for, so that it can be run again.

A journal is a tree. A *segment* lists the calls made between two decisions; a decision ends it, and each of its outcomes
begins another segment. So a run under other outcomes shares everything before the decision that differs, and a call that
was made once is never made again. Positions in the tree name calls and decisions, so the order in which results arrive cannot
matter.

    segment: small(image) ── decision: confident? ─┬─ yes ── segment: (returns)
                                                   └─ no ─── segment: large(image) (returns)
"""

from typing import TYPE_CHECKING, TypeAlias

from dyorc.authoring.decisions import Decision
from dyorc.engine.cells import Argument, Call, Outcome
from dyorc.errors import DyOrcError

if TYPE_CHECKING:
    from dyorc.engine.requests import Task

Entry: TypeAlias = "Call | Task"


_NO_OUTCOME = object()


class BranchPoint:
    """A decision that a run came to.

    Attributes:
        decision: As the workflow asked it.
        branches: What follows, by outcome.
        error: What the workflow saw raised instead of an outcome; it may go on all the same.
    """

    __slots__ = ("branches", "decision", "error", "is_resolved", "outcome")

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.branches: dict[Outcome, Segment] = {}
        self.is_resolved = False
        self.outcome: Outcome = None
        self.error: DyOrcError | None = None

    def fail(self, error: DyOrcError) -> None:
        """Records that there is no outcome. What follows is a branch of its own: a workflow may catch the error and call on."""
        self.error = error
        self.resolve(_NO_OUTCOME)

    def resolve(self, outcome: Outcome) -> "Segment":
        """Records the true outcome; gives the segment that follows it."""
        self.is_resolved = True
        self.outcome = outcome
        return self.branches.setdefault(outcome, Segment())

    def same_as(self, decision: Decision) -> bool:
        """Whether another run asks the same question."""
        mine, theirs = self.decision, decision
        return (
            mine.site == theirs.site
            and mine.kind is theirs.kind
            and mine.ref.cell is theirs.ref.cell
            and mine.ref.field == theirs.ref.field
            and mine.ref.views == theirs.ref.views
        )


class Segment:
    """Calls in the order they were made, and what came after: a branch point, the result, or (so far) nothing."""

    __slots__ = ("end", "entries")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.end: BranchPoint | tuple[Argument, ...] | None = None
