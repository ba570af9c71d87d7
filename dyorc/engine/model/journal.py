"""The journal of a task: the calls and decisions of its runs, so that it can be run again.

A journal is a tree. A *segment* lists the calls made between two decisions; a decision ends it, and each of its outcomes
begins another segment. So a run under other outcomes shares everything up to the decision that differs, and no call is made
twice. Calls and decisions are identified by their position in the tree, so the order in which results arrive does not
matter.

    segment: small(image) ── decision: confident? ─┬─ yes ── segment: (returns)
                                                   └─ no ─── segment: large(image) (returns)

While a decision is open, the branches below it are guesses. When it is taken, the others are cut off. A part of an answer that
is sent in parts ends a segment too, and another follows it.
"""

from collections.abc import Collection, Iterator, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeAlias

from dyorc.authoring.context import current_recorder
from dyorc.authoring.decisions import Decision, DecisionSite
from dyorc.authoring.exact_values import exact
from dyorc.authoring.ref import Ref
from dyorc.core.tensor import BlockId
from dyorc.engine.model.futures import FAILED, Argument, Future, Outcome, read_refs
from dyorc.engine.model.program_call import Call
from dyorc.errors import DyOrcError, text_of, traceback_of, type_name

if TYPE_CHECKING:
    from dyorc.engine.model.request_tree import Task

Entry: TypeAlias = "Call | Task"

Context: TypeAlias = tuple[DecisionSite, int, tuple[Outcome, ...]]
"""What a guess is based on: the decision's site, how many times the run has been there, and the run's last outcomes."""


class StepInterrupted(BaseException):
    """Raised inside a step that takes too long (`dyorc.engine.interfaces.StepMonitor`). No `Exception`, so that workflows do not
    catch it by accident."""


class _NoOutcome:
    def __repr__(self) -> str:
        return "an error"


_NO_OUTCOME = _NoOutcome()


class BranchPoint:
    """A decision that a run reached.

    Attributes:
        decision: As the workflow asked it.
        segment: The segment that it ends.
        branches: What follows, by outcome.
        error: What was raised in the workflow instead of an outcome; the workflow may catch it.
        is_open: Whether it waits for its value. A decision whose value is at hand is taken at once and never open.
        context: What guesses are based on.
        probabilities: Of the outcomes, as predicted when a run first came here.
        num_awaited: Its values that are pending, or being fetched.
        unheld: Stored futures that a run standing here cannot reach, while the outcome is guessed; a resident by its future and
            its place among the outputs.
        number: Its index in `RequestTrace.decisions`; -1 if the request is not recorded.
        is_dropped: Whether it stood on a branch that was cut off.
    """

    __slots__ = (
        "branches", "context", "decision", "error", "is_dropped", "is_open", "is_resolved", "num_awaited", "number",
        "outcome", "probabilities", "segment", "unheld",
    )  # fmt: skip

    def __init__(self, decision: Decision, segment: "Segment") -> None:
        self.decision = decision
        self.segment = segment
        self.branches: dict[Outcome, Segment] = {}
        self.is_open = False
        self.is_resolved = False
        self.is_dropped = False
        self.outcome: Outcome = None
        self.error: DyOrcError | None = None
        self.context: Context | None = None
        self.probabilities: dict[Outcome, float] = {}
        self.num_awaited = 0
        self.unheld: Collection[Future | tuple[Future, int]] = ()
        self.number = -1

    def take(self) -> None:
        """Takes the decision: its value is at hand, or has failed. A separate branch follows a failure."""
        self.is_open = False
        self.is_resolved = True
        self.unheld = ()
        for ref in self.decision.refs:
            if ref.future.state is FAILED:
                self.error = ref.future.error
                break
        else:
            workflow = self.segment.task.callee.name
            token = current_recorder.set(None)  # a predicate is a function of its value and calls nothing
            try:
                outcome = self.decision.decide(self._values(workflow), workflow)
                self.outcome = outcome if type(outcome) is bool else exact(outcome)
            except DyOrcError as error:
                self.error = error
            except StepInterrupted:
                raise
            except BaseException as error:
                text = f"raised {type_name(error)}: {text_of(error)}"
                self.error = self.decision.mistake(workflow, text, self._place_of(error))
            finally:
                current_recorder.reset(token)
        if self.error is not None:
            self.outcome = _NO_OUTCOME
        self.branch(self.outcome)
        if self.segment.task.request.has_stored:
            self._forget_value()

    def _values(self, workflow: str) -> list[Any]:
        """Returns what the decision looks at.

        Raises:
            WorkflowError: If a Ref names a part that its value does not have.
        """
        refs = self.decision.refs
        try:
            return read_refs(refs)
        except IndexError:
            for at, ref in enumerate(refs):
                try:
                    read_refs([ref])
                except IndexError as error:
                    raise self.decision.unreadable(workflow, at, text_of(error)) from None
            raise

    @property
    def is_at_hand(self) -> bool:
        """Whether it can be taken: all of its values have failed or can be looked at."""
        for ref in self.decision.refs:  # noqa: SIM110 (each decision asks; a generator costs more than the comparison)
            if not ref.future.is_at_hand and ref.future.state is not FAILED:
                return False
        return True

    @property
    def is_followed(self) -> bool:
        """Whether it is taken, and its branch goes on to another decision, a part or an end already."""
        return self.is_resolved and self.branches[self.outcome].end is not None

    def _forget_value(self) -> None:
        """Drops the values: once they were read, only the outcome matters."""
        decision = self.decision
        bare = [Ref(ref.future, ref.outputs, ref.field, ref.views) for ref in decision.refs]
        for ref in bare:
            ref.hold = None
        subject = bare[0] if decision.is_single else bare
        self.decision = Decision(decision.kind, subject, decision.function, decision.site, decision.likely)

    def _place_of(self, error: BaseException) -> DecisionSite:
        site = self.decision.site
        code = site.code
        return site if code is None else DecisionSite(code, last_line(error, code) or site.line)

    def branch(self, outcome: Outcome) -> "Segment":
        """Returns the segment that follows an outcome."""
        segment = self.branches.get(outcome)
        if segment is None:
            is_certain = self.segment.is_certain and self.is_resolved
            segment = self.branches[outcome] = Segment(self.segment.task, is_certain, self, outcome)
            segment.decision = self.number
        return segment

    def same_as(self, decision: Decision) -> bool:
        """Returns whether another run asks the same question."""
        mine, theirs = self.decision, decision
        if mine is theirs:
            return True
        if mine.site is not theirs.site or mine.kind is not theirs.kind or len(mine.refs) != len(theirs.refs):
            return False
        return all(
            my.future is their.future and my.field == their.field and my.views == their.views
            for my, their in zip(mine.refs, theirs.refs, strict=True)
        )


class StreamPart:
    """A part that a streaming workflow yielded.

    Attributes:
        segment: The segment that it ends.
        following: The one that follows.
        index: Parts of the run before this one.
        arguments: One for each declared output; they hold its tensors until it has been taken.
        blocks: Where its tensors lie that were sent and may be read now.
        num_awaited: Its tensors that are pending or being restored.
        num_sent: How many times it was sent, because tensors were lost before they were read.
        is_lost: Whether it has to be sent again.
    """

    __slots__ = ("arguments", "blocks", "following", "index", "is_lost", "num_awaited", "num_sent", "segment")

    def __init__(self, segment: "Segment", index: int, arguments: tuple[Argument, ...]) -> None:
        self.segment = segment
        self.following = Segment(segment.task, segment.is_certain, segment.origin, segment.outcome)
        self.following.decision = segment.decision
        self.following.position = segment.next_position
        self.index = index
        self.arguments = arguments
        self.blocks: Sequence[BlockId] = ()
        self.num_awaited = 0
        self.num_sent = 0
        self.is_lost = False

    def same_as(self, arguments: tuple[Argument, ...]) -> bool:
        """Returns whether another run yields the same tensors."""
        return all(a.same_as(b) for a, b in zip(self.arguments, arguments, strict=True))

    def __repr__(self) -> str:
        return f"part {self.index}"


class Segment:
    """Calls in the order they were made, and what came after: a branch point, a part, the result, or (so far) nothing.

    Attributes:
        is_certain: Whether all decisions before it are taken, including the ones before its task.
        origin: The decision it follows, as long as it is not certain.
        outcome: Of that decision.
        decision: That decision's `BranchPoint.number`, also when it is certain.
        position: Calls, decisions and parts of its task before it.
    """

    __slots__ = ("decision", "end", "entries", "is_certain", "origin", "outcome", "position", "task")

    def __init__(self, task: "Task", is_certain: bool, origin: BranchPoint | None = None, outcome: Outcome = None) -> None:
        self.task = task
        self.is_certain = is_certain
        self.origin = None if is_certain else origin
        self.outcome = outcome
        self.decision = -1
        self.position: int = 0 if origin is None else origin.segment.next_position
        self.entries: list[Entry] = []
        self.end: BranchPoint | StreamPart | tuple[Argument, ...] | None = None

    @property
    def next_position(self) -> int:
        """The `position` of what follows its end."""
        return self.position + len(self.entries) + 1

    def below(self) -> "Iterator[Segment]":
        """Yields this segment and all that follow it."""
        pending: list[Segment] = [self]
        while pending:
            segment = pending.pop()
            yield segment
            if isinstance(segment.end, BranchPoint):
                pending.extend(segment.end.branches.values())
            elif isinstance(segment.end, StreamPart):
                pending.append(segment.end.following)

    def next_taken(self) -> "Segment | None":
        """Returns the segment that follows, if there is no decision between them, or one that is taken."""
        end = self.end
        if isinstance(end, BranchPoint):
            return end.branches[end.outcome] if end.is_resolved else None
        return end.following if isinstance(end, StreamPart) else None

    def open_points(self) -> Iterator[tuple[BranchPoint, Outcome]]:
        """Yields the open decisions it depends on, the last first and then those before its task, each with its outcome."""
        segment = self
        while not segment.is_certain:
            point = segment.origin
            if point is None:
                if segment.task.segment is None:
                    return
                segment = segment.task.segment
            else:
                if not point.is_resolved:
                    yield point, segment.outcome
                segment = point.segment

    def probability(self) -> float:
        """Returns the predicted probability that its calls are needed. A plain walk along `open_points`: this is asked often."""
        product = 1.0
        segment: Segment | None = self
        while segment is not None and not segment.is_certain:
            point = segment.origin
            if point is None:
                segment = segment.task.segment
            else:
                if not point.is_resolved:
                    product *= point.probabilities.get(segment.outcome, 0.0)
                segment = point.segment
        return product


def last_line(error: BaseException, code: CodeType) -> int:
    """Returns the last line of a piece of code's own file that an exception passed through; 0 if it passed none."""
    traceback, line = traceback_of(error), 0
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == code.co_filename:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line
