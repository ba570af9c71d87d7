"""A path: one run of a task's coroutine against its journal.

The path steps the user's coroutine itself with ``send()``; no event loop takes part. Calls in the journal are answered from it,
others are added. The path stops only where it needs a value that is not there; at a decision it may go on all the same, under a
guessed outcome.
"""

from collections.abc import Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from dyorc.authoring.context import current_recorder
from dyorc.authoring.decisions import Decision, DecisionSite, Gather
from dyorc.authoring.exact_values import Exact, plain
from dyorc.authoring.program import Program
from dyorc.authoring.ref import Ref
from dyorc.authoring.signature import StaticValue
from dyorc.authoring.stream import END_OF_STREAM, NextPart, Stream
from dyorc.authoring.workflow import Workflow
from dyorc.core.request import RequestInfo
from dyorc.engine.model.futures import FAILED, PENDING, READY, Argument, Outcome, read_array, read_refs
from dyorc.engine.model.journal import BranchPoint, Entry, StepInterrupted, StreamPart
from dyorc.engine.model.part_list import PartList, StreamArgument
from dyorc.engine.model.request_tree import Task
from dyorc.engine.tasks.call_arguments import OF_ANOTHER, add_arguments, argument_of, check_streams, difference_of, is_same_call
from dyorc.engine.tasks.coroutines import close_coroutine, current_line, forget_frames, line_of, open_coroutine
from dyorc.engine.tasks.generators import Generating, Yielded
from dyorc.engine.tasks.resident_uses import check_consumed, refusal_to_read
from dyorc.engine.tasks.stops import Blocked, End, Raised, Returned, Stop, StreamFull, Undecided
from dyorc.engine.turn import Turn
from dyorc.errors import (
    DyOrcError,
    ForeignAwaitError,
    InvalidInputError,
    NondeterministicWorkflowError,
    WorkflowError,
    text_of,
    type_name,
)

_MAX_TURNS = 16
"""Visits of a decision's site that a guess tells apart."""
_NO_LOOP = "no running event loop"
"""What asyncio says when it is used without a loop, as under `dyorc.run`."""


_UNDECIDED = Undecided()


class Guide(Protocol):
    """Decides for a path when it reaches something new."""

    def make_entry(
        self, path: "ExecutionPath", callee: Program | Workflow, arguments: tuple[Argument, ...], statics: tuple[StaticValue, ...]
    ) -> Entry:
        """Returns the entry for a new call or task. May refuse by raising `WorkflowError`."""
        ...

    def make_entries(
        self,
        path: "ExecutionPath",
        callee: Program | Workflow,
        rows: Sequence[tuple[Argument, ...]],
        statics: tuple[StaticValue, ...],
    ) -> list[Entry] | None:
        """Returns an entry for each of several new calls or tasks; None if they have to be looked at one by one."""
        ...

    def make_part(self, path: "ExecutionPath", arguments: tuple[Argument, ...]) -> StreamPart | None:
        """Returns a new part; None to wait. May refuse by raising `WorkflowError`."""
        ...

    def read_on(self, parts: PartList) -> None:
        """Lets a stream go on, because more of it was read than ever before."""
        ...

    def record_decision(self, point: BranchPoint) -> None:
        """Records a decision of a recorded request, when it is reached and again if it is taken at once."""
        ...

    def guess(self, path: "ExecutionPath", point: BranchPoint) -> tuple[Outcome] | None:
        """Returns the outcome to assume at an open decision, in a tuple, since it may be None; None to wait."""
        ...


class ExecutionPath:
    """One run of a coroutine, a `Run`. It is the recorder of the calls that the coroutine makes.

    Args:
        task: Whose coroutine is run, from the start of its journal, which all its paths share.
        assumed: Outcomes to assume for open decisions.

    Attributes:
        issued: New calls and tasks; the engine takes them from here.
        opened: New decisions that wait for their values; likewise.
    """

    __slots__ = (
        "_coroutine", "_cursor", "_guide", "_owner", "_recent", "_refusal", "_visits", "_wanted", "_workflow", "assumed",
        "awaits_room", "end", "is_closed", "issued", "num_awaited", "num_parts", "opened", "segment", "undecided",
    )  # fmt: skip

    _guide: Guide

    def __init__(self, task: Task, assumed: Mapping[BranchPoint, Outcome] = MappingProxyType({})) -> None:
        self._workflow = task.callee
        self._owner = task.context
        self._cursor = 0
        self._wanted: Any = None
        self._refusal: WorkflowError | None = None
        self._visits: dict[DecisionSite, int] = {}
        self._recent: tuple[Outcome, ...] = ()
        self.segment = task.journal
        self.assumed: dict[BranchPoint, Outcome] = dict(assumed)
        self.issued: list[Entry] = []
        self.opened: list[BranchPoint] = []
        self.undecided: BranchPoint | None = None
        self.num_awaited = 0
        self.end: End | None = None
        self.is_closed = False
        self.num_parts = 0
        self.awaits_room = False
        self._coroutine: Coroutine[Any, Any, Any] | Generating | None = None  # until it runs: making it may fail

    def run(self, guide: Guide) -> Stop:
        """Runs as far as the values allow.

        Args:
            guide: Decides when the run reaches something new.
        """
        self._guide = guide
        token = current_recorder.set(self)
        try:
            return self._run()
        finally:
            current_recorder.reset(token)
            if self._refusal is not None:
                forget_frames(self._refusal)

    def close(self) -> None:
        """Ends a run that is not needed."""
        self.is_closed = True
        close_coroutine(self._coroutine)

    def _run(self) -> Stop:
        try:
            coroutine = self._coroutine
            if coroutine is None:
                task = self.segment.task
                inputs = task.inputs()
                if task.callee.signature.has_plain_inputs and (wait := self._plain_inputs(task, inputs)) is not None:
                    return wait
                coroutine = self._coroutine = open_coroutine(task, inputs)
                self._wanted = coroutine.send(None)
            while True:
                if self._refusal is not None:
                    raise self._refusal
                reply = self._reply(self._wanted)
                if isinstance(reply, tuple):
                    self._wanted = coroutine.send(reply[0])
                elif isinstance(reply, DyOrcError):
                    task = self.segment.task
                    if task.request.has_effects:
                        task.request.raised += [(error, task) for error in self._errors_behind(reply)]
                    try:
                        self._wanted = coroutine.throw(reply.with_traceback(None))
                    finally:
                        forget_frames(reply)
                else:
                    return reply
        except StopIteration as stop:
            return self._returned(stop.value) if self._refusal is None else Raised(self._refusal)
        except DyOrcError as error:
            close_coroutine(self._coroutine)
            forget_frames(error)
            return Raised(self._refusal or error)
        except StepInterrupted:
            raise
        except BaseException as error:  # no error of user code may end the engine
            if self._refusal is not None:
                return Raised(self._refusal)
            wrapped = self._wrap(error)
            close_coroutine(self._coroutine)
            wrapped.__cause__ = error
            forget_frames(error)
            return Raised(wrapped)

    def _plain_inputs(self, task: Task, inputs: list[Any]) -> Stop | None:
        """Puts structured values in the place of their Refs, as far as the workflow sees them so; None once all are there."""
        specs = task.callee.signature.inputs
        refs = [ref for ref, spec in zip(inputs, specs, strict=True) if spec.is_plain]
        if (blocked := self._values(refs)) is not None:
            return blocked
        if (failure := self._failure(refs)) is not None:
            return Raised(failure)
        try:
            for at, spec in enumerate(specs):
                if spec.is_plain:
                    inputs[at] = spec.value_of(read_array(inputs[at]), task.callee.signature.owner)
        except InvalidInputError as error:
            if task is task.request.root:
                return Raised(error)
            return Raised(WorkflowError(str(error)))
        return None

    def _reply(self, wanted: Any) -> Blocked | Undecided | StreamFull | DyOrcError | tuple[Any]:
        """Returns what the coroutine gets for what it awaits: a value (in a tuple), an error to throw, or nothing yet."""
        match wanted:
            case Decision():
                return self._decide(wanted)
            case Ref():
                if wanted.future.owner is not self._owner:
                    return self._misuse(f"awaits a Ref {OF_ANOTHER}")
                if wanted.outputs.has_residents and (why := refusal_to_read(wanted, "awaits")):
                    return self._misuse(why)
                return self._values((wanted,)) or self._failure((wanted,)) or (read_refs((wanted,))[0],)
            case Gather(refs=refs):
                for ref in refs:
                    if ref.future.owner is not self._owner:
                        return self._misuse(f"gathers a Ref {OF_ANOTHER}")
                    if ref.outputs.has_residents and (why := refusal_to_read(ref, "awaits")):
                        return self._misuse(why)
                return self._values(refs) or self._failure(refs) or (read_refs(refs),)
            case Yielded(value=value):
                return self._yield(value)
            case Stream():
                return self._misuse(wanted.refusal())
            case NextPart():
                if wanted.parts.owner is not self._owner:
                    return self._misuse(f"reads a Stream {OF_ANOTHER}")
                return self._next_part(wanted)
            case _:
                kind = "nothing (a bare yield, as asyncio.sleep(0) makes)" if wanted is None else f"a {type(wanted).__name__}"
                raise self._foreign(f"awaits {kind}", self._current_line())

    def _misuse(self, what: str) -> WorkflowError:
        return WorkflowError(f"workflow {self._workflow.name!r} {what} ({self._current_line()})")

    @staticmethod
    def _values(refs: Sequence[Ref]) -> Blocked | None:
        """Returns what has to happen before the values of `refs` can be read."""
        pending = [ref.future for ref in refs if ref.future.state is PENDING]
        if pending:
            return Blocked(pending)
        unfetched = [ref.future for ref in refs if ref.future.state is READY and not ref.future.is_at_hand]
        return Blocked((), unfetched) if unfetched else None

    @staticmethod
    def _failure(refs: Sequence[Ref]) -> DyOrcError | None:
        return next((ref.future.error for ref in refs if ref.future.state is FAILED), None)

    def _errors_behind(self, reply: DyOrcError) -> Sequence[DyOrcError]:
        """Returns the errors that a run learns of when one is thrown: those of all that it awaits together."""
        refs: Sequence[Ref] = self._wanted.refs if isinstance(self._wanted, Gather | Decision) else ()
        return [error for ref in refs if (error := ref.future.error) is not None] or (reply,)

    def _next_part(self, wanted: NextPart) -> Blocked | DyOrcError | tuple[Any]:
        """Returns a part, as a Ref, or the end of a stream."""
        parts: PartList = wanted.parts
        index = wanted.index
        if index > parts.num_read:
            parts.num_read = index
            self._guide.read_on(parts)
        cell = parts.cells[index]
        if cell.state is PENDING:
            return Blocked((cell,))
        if cell.error is not None:
            return cell.error
        return (END_OF_STREAM if cell.is_end else Ref(cell, wanted.outputs),)

    def _decide(self, decision: Decision) -> Undecided | DyOrcError | tuple[Any]:
        point = self.segment.end
        if point is None and self._cursor == len(self.segment.entries):
            for ref in decision.refs:
                if ref.future.owner is not self._owner:
                    return self._misuse(f"decides by a Ref {OF_ANOTHER}")
                if ref.outputs.has_residents and (why := refusal_to_read(ref, "decides by")):
                    return self._misuse(why)
            point = self.segment.end = BranchPoint(decision, self.segment)
        elif not (isinstance(point, BranchPoint) and self._cursor == len(self.segment.entries) and point.same_as(decision)):
            raise self.nondeterministic(f"a decision by dyorc.{decision.kind.value}")
        if not point.is_resolved:
            if not point.is_open:
                self._arrive(point)
            if point.is_open:
                guess = (self.assumed[point],) if point in self.assumed else self._guide.guess(self, point)
                if guess is None:
                    self.undecided = point
                    return _UNDECIDED
                self.assumed[point] = guess[0]
                self._enter(point, guess[0])
                return (plain(guess[0]),)
        self.undecided = None
        self._enter(point, point.outcome)
        if point.error is not None:
            return point.error
        outcome: Any = plain(point.outcome)
        return (outcome if decision.is_single else list(outcome),)

    def _arrive(self, point: BranchPoint) -> None:
        """Takes a decision that no path has reached before, or leaves it open if its value is not at hand."""
        is_recorded = self.segment.task.request.context.story is not None
        if is_recorded:
            self._guide.record_decision(point)
        if point.is_at_hand:
            point.take()
            if is_recorded:
                self._guide.record_decision(point)
            return
        if getattr(point.decision.function, "__closure__", True):  # else it reads no variables
            point.decision.freeze()
        site = point.decision.site
        point.is_open = True
        point.context = (site, min(self._visits.get(site, 0), _MAX_TURNS), self._recent)
        self.opened.append(point)

    def _enter(self, point: BranchPoint, outcome: Outcome) -> None:
        """Goes on under an outcome."""
        self.segment = point.branch(outcome)
        self._cursor = 0
        site = point.decision.site
        self._visits[site] = self._visits.get(site, 0) + 1
        if not point.decision.is_single:
            return  # its outcomes are too many to tell later decisions apart by
        if type(outcome) is Exact and not outcome.is_immutable:
            outcome = type(plain(outcome)).__name__  # no other request has this very object
        self._recent = (*self._recent[-1:], outcome)

    def _yield(self, value: Any) -> StreamFull | tuple[Any]:
        """Adds a part and goes on behind it: nothing waits for its tensors."""
        arguments = self._as_result(value, "yielded")
        part = self.segment.end
        is_at_end = self._cursor == len(self.segment.entries)
        if is_at_end and part is None:
            part = self._guide.make_part(self, arguments)
            if part is None:
                self.awaits_room = True
                return StreamFull()
            self.segment.end = part
        elif not is_at_end or not isinstance(part, StreamPart) or not part.same_as(arguments):
            raise self.nondeterministic(f"part {self.num_parts} of its answer")
        self.segment = part.following
        self._cursor = 0
        self.num_parts += 1
        return (None,)

    def call(
        self, callee: Program | Workflow, tensors: Sequence[Any], statics: tuple[StaticValue, ...], streams: Sequence[Any] = ()
    ) -> Ref | Stream:
        """Records a call: from the journal if it is known there, else as a new entry."""
        signature = callee.signature
        rows: list[tuple[Argument, ...]] = []
        add_arguments(rows, callee, (tensors,), self._owner)
        arguments = rows[0]
        if signature.consumed and isinstance(callee, Program):
            check_consumed(callee, arguments)
        if streams:
            check_streams(callee, streams, self._owner)
        entries = self.segment.entries
        if self._cursor < len(entries):
            entry = entries[self._cursor]
            if not is_same_call(entry, callee, arguments, statics, streams):
                why = difference_of(entry, callee, arguments, statics)
                raise self._refuse(self.nondeterministic(f"a call of {callee.name!r}", why))
        elif self.segment.end is not None:
            raise self._refuse(self.nondeterministic(f"a call of {callee.name!r}"))
        else:
            try:
                entry = self._guide.make_entry(self, callee, arguments, statics)
            except WorkflowError as error:
                raise self._refuse(type(error)(f"{error} ({self._current_line()})")) from None
            if streams:
                entry.streams = tuple([StreamArgument(stream.parts, entry) for stream in streams])
            entries.append(entry)
            self.issued.append(entry)
        self._cursor += 1
        if entry.parts is not None:
            return Stream(entry.parts, signature.outputs)
        return Ref(entry.future, signature.outputs)

    def call_all(
        self, callee: Program | Workflow, rows: Sequence[Sequence[Any]], statics: tuple[StaticValue, ...]
    ) -> list[Ref | Stream]:
        """Records calls that take no streams: new ones together, if none may be refused; others one by one."""
        segment, signature = self.segment, callee.signature
        if self._cursor < len(segment.entries) or segment.end is not None or signature.consumed:
            return [self.call(callee, row, statics) for row in rows]
        made: list[tuple[Argument, ...]] = []
        failure: Exception | None = None
        try:
            add_arguments(made, callee, rows, self._owner)
        except Exception as error:  # the workflow may go on with the calls before this one
            failure = error
        entries = self._guide.make_entries(self, callee, made, statics)
        if entries is None:
            return [self.call(callee, row, statics) for row in rows]
        segment.entries += entries
        self.issued += entries
        self._cursor += len(entries)
        if failure is not None:
            raise failure
        return [Ref(entry.future, signature.outputs) for entry in entries]

    def request_info(self) -> RequestInfo:
        """Returns the request for which it runs."""
        return self._owner.request_info()

    def mistake(self, error: InvalidInputError) -> WorkflowError:
        """Returns the workflow's own error for a call that it makes with arguments that do not fit. Its code may catch it."""
        return WorkflowError(f"workflow {self._workflow.name!r}: {error} ({self._current_line()})")

    def _refuse(self, error: WorkflowError) -> WorkflowError:
        """Remembers an error that ends the run even if user code catches it: the journal knows nothing of that call."""
        self._refusal = self._refusal or error
        return error

    def _as_result(self, value: Any, verb: str) -> tuple[Argument, ...]:
        """Converts what the coroutine returned or yielded to one argument per declared output.

        Raises:
            WorkflowError: If it is grouped differently, or contains something other than tensors.
        """
        workflow = self._workflow
        outputs = workflow.signature.outputs
        try:
            if isinstance(value, Ref) and value.field is None and value.outputs.names == outputs.names:
                parts = tuple(Ref(value.future, value.outputs, at) for at in range(len(outputs.tensors)))
            else:
                parts = outputs.flatten(value, f"workflow {workflow.name!r}", verb)
            goes_on = verb == "yielded"
            return tuple(
                [
                    argument_of(workflow, spec, part, goes_on, self._owner)
                    for spec, part in zip(outputs.tensors, parts, strict=True)
                ]
            )
        except (WorkflowError, StepInterrupted):
            raise
        except BaseException as error:  # of the user's objects
            raise WorkflowError(f"workflow {workflow.name!r} {verb} something that is not a result: {text_of(error)}") from None

    def _returned(self, value: Any) -> Stop:
        try:
            result = () if self._workflow.is_streaming else self._as_result(value, "returned")
        except WorkflowError as error:
            forget_frames(error)
            return Raised(error)
        end = self.segment.end
        if end is None and self._cursor == len(self.segment.entries):
            self.segment.end = result
        elif (
            not isinstance(end, tuple)
            or self._cursor < len(self.segment.entries)
            or not all(a.same_as(b) for a, b in zip(end, result, strict=True))
        ):
            return Raised(self.nondeterministic("its result"))
        return Returned(result)

    def nondeterministic(self, now: str, why: str = "") -> NondeterministicWorkflowError:
        """Returns the error of a run that reached something other than what its journal says."""
        segment = self.segment
        if self._cursor < len(segment.entries):
            before = f"a call of {segment.entries[self._cursor].callee.name!r}"
        elif isinstance(segment.end, BranchPoint):
            before = f"a decision by dyorc.{segment.end.decision.kind.value}"
        elif isinstance(segment.end, StreamPart):
            before = f"another part {segment.end.index}"
        else:
            before = "its end" if self._workflow.is_streaming else "another result"
        if before == now:
            before += " with other arguments"
        return NondeterministicWorkflowError(
            f"workflow {self._workflow.name!r} is not deterministic: run again with the same results it came to {now} with these "
            f"arguments, where it had come to {before} ({self._current_line()}); random numbers, clocks and I/O belong "
            f"in programs{why}"
        )

    def _wrap(self, error: BaseException) -> WorkflowError:
        """Wraps an exception of user code as the workflow's error."""
        where = line_of(error, self._coroutine, self._workflow)
        if issubclass(type(error), RuntimeError) and text_of(error) == _NO_LOOP:
            return self._foreign("needs an event loop, as asyncio.sleep does", where)
        return WorkflowError(f"workflow {self._workflow.name!r} raised {type_name(error)}: {text_of(error)} ({where})")

    def _foreign(self, does: str, where: str) -> ForeignAwaitError:
        return ForeignAwaitError(
            f"workflow {self._workflow.name!r} {does} ({where}); a workflow may await Refs, dyorc.when, dyorc.choose, "
            f"dyorc.gather and dyorc.collect, and everything else belongs in a program"
        )

    def _current_line(self) -> str:
        return current_line(self._coroutine, self._workflow)


def open_path(turn: Turn, task: Task, assumed: Mapping[BranchPoint, Outcome] = MappingProxyType({})) -> None:
    """Starts a run of a task: its first, or another under given outcomes of open decisions."""
    path = ExecutionPath(task, assumed)
    task.paths.append(path)
    turn.runnable.append(path)
