"""What the model knows of a run of a task's coroutine (`dyorc.engine.tasks.paths.ExecutionPath`)."""

from typing import TYPE_CHECKING, Protocol

from dyorc.engine.model.cells import Outcome

if TYPE_CHECKING:
    from dyorc.engine.model.journal import BranchPoint, Segment


class Run(Protocol):
    """One run of a coroutine against its task's journal.

    Attributes:
        segment: Where in the journal it stands.
        assumed: The open decisions that it has passed, first to last, or is going to pass, and what it takes for their outcomes.
        undecided: The decision that it waits for.
        num_awaited: Cells that it waits for.
        num_parts: Parts that it has yielded.
        awaits_room: Whether it waits until some of them have been taken.
        is_closed: Whether it was ended because nobody needs it.
    """

    segment: "Segment"
    assumed: "dict[BranchPoint, Outcome]"
    undecided: "BranchPoint | None"
    num_awaited: int
    num_parts: int
    awaits_room: bool
    is_closed: bool

    @property
    def end(self) -> object | None:
        """How it ended, while that still rests on guesses; None before."""
        ...

    def close(self) -> None:
        """Ends it."""
        ...
