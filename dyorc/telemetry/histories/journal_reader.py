"""Makes a history of a request's journal, before the engine forgets it. For the event loop's thread; reads, and changes nothing.

Only branches that were taken count: what was guessed and not needed is in no history.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from math import inf
from typing import Any

from dyorc.authoring.ref import Ref
from dyorc.authoring.signature import StaticValue
from dyorc.core.arrays import Array, apply_views
from dyorc.core.tensor import DType, Index, TensorRef
from dyorc.engine.model.futures import READY, Argument, Future
from dyorc.engine.model.journal import BranchPoint, Segment, StreamPart
from dyorc.engine.model.part_list import Cell, PartList
from dyorc.engine.model.program_call import Call, Feed
from dyorc.engine.model.request_tree import Request, Task, TaskState
from dyorc.engine.request_trace import CallTrace
from dyorc.engine.scheduling.failed_streams import raised_by
from dyorc.errors import DyOrcError, InvalidInputError, ProgramError, bounded, text_of, type_name
from dyorc.telemetry.histories.history import (
    CONSTANT,
    FORMAT,
    INPUT,
    ROOT,
    WHOLE,
    HistoryCall,
    HistoryDecision,
    KeptTensor,
    NestedRun,
    ReadStream,
    RequestHistory,
    TensorSource,
    digest_of_statics,
    json_of_index,
    text_of_outcome,
)

_MAX_VIEWS = 1000
"""Indices on the way from a tensor to where it is used; a longer way is refused, not followed."""
MAX_VALUES = 16
"""A history keeps so many tensors of the largest size, or more that are smaller."""


class JournalReader:
    """Reads the journal of one request.

    Args:
        max_value_bytes: Larger tensors are kept without their bytes, larger texts not at all.
        redacted: Names of inputs and parameters whose values are not kept.

    Attributes:
        num_kept_bytes: Bytes of the tensors and texts that it has kept.
    """

    def __init__(self, request: Request, root: Task, max_value_bytes: int, redacted: Collection[str] = ()) -> None:
        self._request = request
        self._root = root
        self._max_value_bytes = max_value_bytes
        self.num_kept_bytes = 0
        signature = root.callee.signature
        self._redacted = tuple([name for name in signature.names() if name in redacted])
        self._places: dict[Future, tuple[int, int, int]] = {}
        """Where each future is: its call, or `INPUT`; the number of its first tensor there; and its part, or `WHOLE`."""
        self._constants: list[KeptTensor] = []
        self._runs: dict[Task, int] = {}
        self._through: set[int] = set()
        """The nested runs through whose results the sources were found that were last asked for."""

    def read(self, request_id: str, error: DyOrcError | None, ended_ns: int) -> RequestHistory:
        """Returns the history of the request, which has ended, with this error or an answer."""
        root, context = self._root, self._request.context
        name, _, version = root.name.partition("@")
        signature = root.callee.signature
        inputs = dict(self._inputs())
        statics = dict(self._statics())
        taken = _TakenBranches(root)
        for at, (call, _, _) in enumerate(taken.calls):
            self._places[call.future] = at, 0, WHOLE
            for index, cell in enumerate(_parts_of(call.parts)):
                self._places[cell] = at, 0, index
        self._runs = {task: number for number, (task, _, _) in enumerate(taken.nested)}
        info = context.request_info()
        return RequestHistory(
            request_id=request_id or info.id,
            workflow=name,
            version=version or "1",
            code=root.callee.code,
            at_s=round(time.time(), 3),
            duration_ms=_ms(ended_ns - self._request.arrived_ns),
            inputs=inputs,
            statics=statics,
            defaults=tuple([name for name in self._defaults() if name not in self._redacted]),
            redacted=self._redacted,
            unkept=tuple([spec.name for spec in signature.statics if spec.name not in (*statics, *self._redacted)]),
            outputs=tuple([spec.name for spec in signature.outputs.tensors]),
            tenant=context.tenant,
            priority=context.terms.priority,
            headers=tuple(info.headers.items()),
            calls=[self._call(call, run, is_ahead=is_ahead) for call, run, is_ahead in taken.calls],
            nested=[self._nested(task, caller, is_cut=is_cut) for task, caller, is_cut in taken.nested],
            decisions=[self._decision(point, run, is_ahead=is_ahead) for point, run, is_ahead in taken.decisions],
            answer=self._tensors(root.result) if error is None and not root.callee.is_streaming else (),
            parts=tuple([self._tensors(part.arguments) for part in _yielded(root)]) if root.callee.is_streaming else None,
            constants=self._constants,
            error=() if error is None else (error.code, bounded(str(error))),
            refusal=_refusal([call for call, _, _ in taken.calls]),
            format=FORMAT,
        )

    def _inputs(self) -> Iterator[tuple[str, KeptTensor]]:
        for at, (spec, argument) in enumerate(zip(self._root.callee.signature.inputs, self._root.arguments, strict=True)):
            future = argument.future
            self._places[future] = INPUT, at, WHOLE
            yield spec.name, self._kept(future, 0, is_redacted=spec.name in self._redacted)

    def _statics(self) -> Iterator[tuple[str, StaticValue]]:
        """Yields the parameters that are kept; a larger text is not."""
        for spec, value in zip(self._root.callee.signature.statics, self._root.statics, strict=True):
            num_bytes = len(value) if isinstance(value, str) else 0
            if spec.name not in self._redacted and num_bytes <= self._max_bytes:
                self.num_kept_bytes += num_bytes
                yield spec.name, value

    def _defaults(self) -> Iterator[str]:
        """Yields the names of inputs and parameters whose values equal their defaults."""
        signature = self._root.callee.signature
        for spec, argument in zip(signature.inputs, self._root.arguments, strict=True):
            default = spec.default_array
            if default is not None and (array := _array_of(argument.future, 0)) is not None and array[()] == default[()]:
                yield spec.name
        for spec, value in zip(signature.statics, self._root.statics, strict=True):
            if repr(value) == repr(spec.default):  # 1 is not 1.0, and NaN is NaN
                yield spec.name

    def _nested(self, task: Task, caller: int, *, is_cut: bool) -> NestedRun:
        return NestedRun(task.name, self._tensors(task.arguments), digest_of_statics(task.statics), caller, is_cut)

    def _call(self, call: Call, run: int, *, is_ahead: bool) -> HistoryCall:
        program, future = call.callee, call.future
        queue_ms, compute_ms = _times(call.trace)
        self._through.clear()
        kept = HistoryCall(
            program.own_name or program.name,
            self._tensors(call.arguments),
            digest_of_statics(call.statics),
            results=tuple(sorted(self._through)),
            streams=tuple([self._read_stream(feed) for feed in call.feeds] or [ReadStream()] * len(call.streams)),
            is_effect=not program.options.pure,
            workflow=run,
            is_ahead=is_ahead,
            queue_ms=queue_ms,
            compute_ms=compute_ms,
        )
        if call.parts is not None:
            kept.parts = tuple([self._outputs(cell) for cell in _parts_of(call.parts)])
        if future.state is READY:
            kept.outputs = self._outputs(future)
        elif future.error is not None and _has_run(call):
            error_type, message = raised_by(call, future.error)
            kept.error = error_type, bounded(message)
        return kept

    def _outputs(self, future: Future) -> tuple[KeptTensor, ...]:
        return tuple([self._kept(future, at) for at in range(len(future.tensors))])

    def _read_stream(self, feed: Feed) -> ReadStream:
        """Returns what a call has read of a stream, as far as it has said so."""
        is_ended = feed.has_ended and feed.num_taken == feed.num_fed
        return ReadStream(
            tuple([tuple(self._tensors_of(cell)) for cell in feed.parts.cells[: feed.num_taken]]),
            is_ended,
            (type_name(feed.error), text_of(feed.error)) if is_ended and feed.error is not None else (),
        )

    def _tensors_of(self, cell: Cell) -> Iterator[TensorSource]:
        for field in range(len(cell.tensors)):
            yield from self._sources(Argument(cell, field))

    def _decision(self, point: BranchPoint, run: int, *, is_ahead: bool) -> HistoryDecision:
        decision = point.decision
        return HistoryDecision(
            str(decision.site),
            decision.kind.value,
            self._tensors([argument for ref in decision.refs for argument in _arguments_of(ref)]),
            text_of_outcome(point.outcome) if point.error is None else f"an error: {bounded(str(point.error))}",
            run,
            is_ahead,
        )

    def _kept(self, future: Future, field: int, *, is_redacted: bool = False, needs_digest: bool = False) -> KeptTensor:
        tensor = future.tensors[field]
        array = _array_of(future, field)
        if array is None:
            return KeptTensor(tensor.dtype, tensor.shape)
        kept = KeptTensor.of(array, max_bytes=self._max_bytes, is_redacted=is_redacted, needs_digest=needs_digest)
        self.num_kept_bytes += len(kept.data or b"")
        return kept

    def _tensors(self, arguments: Iterable[Argument]) -> tuple[TensorSource, ...]:
        return tuple([source for argument in arguments for source in self._sources(argument)])

    @property
    def _max_bytes(self) -> int:
        """Of the next value."""
        return min(self._max_value_bytes, MAX_VALUES * self._max_value_bytes - self.num_kept_bytes)

    def _sources(self, argument: Argument) -> list[TensorSource]:
        """Returns where an argument's tensor comes from, through the results of workflows and the parts that they yield; nothing
        if there is none, as one that was called has failed."""
        future, field, views = argument.future, argument.field, argument.views
        while (result := _made_by_workflow(future)) is not None:
            if isinstance(future.producer, Task):
                self._through.add(self._runs[future.producer])
            if field >= len(result) or len(views) > _MAX_VIEWS:
                return []
            future, field, views = result[field].future, result[field].field, (*result[field].views, *views)
        place = self._places.get(future)
        if place is not None:
            call, first, part = place
            return [TensorSource(call, first + field, _json(views), part)]
        if future.producer is not None or not future.tensors:
            return []
        self._constants.append(self._kept(future, field, is_redacted=bool(self._redacted), needs_digest=True))
        return [TensorSource(CONSTANT, len(self._constants) - 1, _json(views))]


class _TakenBranches:
    """What stands in the journals of a task and of the tasks that it called, on the branches that were taken, in order.

    Attributes:
        calls: Each with the nested run that made it, or `ROOT`, and whether it `is_ahead`.
        nested: Tasks that others called, each with the run that called it and whether it `is_cut`.
        decisions: What was decided, likewise.
    """

    def __init__(self, root: Task) -> None:
        self.calls: list[tuple[Call, int, bool]] = []
        self.nested: list[tuple[Task, int, bool]] = []
        self.decisions: list[tuple[BranchPoint, int, bool]] = []
        self._passed: set[PartList] = set()
        self._read(root)
        if passed := {stream.parts for call, _, _ in self.calls for stream in call.streams}:
            self.calls, self.nested, self.decisions, self._passed = [], [], [], passed
            self._read(root)

    def _read(self, root: Task) -> None:
        pending = [(ROOT, self._own_entries(root), False)]
        while pending:
            run, entries, is_all_ahead = pending[-1]
            entry, is_ahead = next(entries, (None, False))
            is_ahead = is_ahead or is_all_ahead
            match entry:
                case None:
                    pending.pop()
                case Call():
                    self.calls.append((entry, run, is_ahead))
                case BranchPoint():
                    self.decisions.append((entry, run, is_ahead))
                case Task():
                    self.nested.append((entry, run, self._is_cut(entry)))
                    pending.append((len(self.nested) - 1, self._own_entries(entry), is_ahead))

    def _own_entries(self, task: Task) -> Iterator[tuple[Call | Task | BranchPoint, bool]]:
        """Yields the calls, tasks and decisions of one task, each with whether it follows the last part that was asked for."""
        num_yielded, num_asked = 0, inf if task.parts is None else self._num_asked(task.parts)
        for segment in _taken_segments(task):
            is_ahead = num_yielded >= num_asked
            for entry in segment.entries:
                yield entry, is_ahead
            if isinstance(segment.end, BranchPoint) and segment.end.is_resolved:
                yield segment.end, is_ahead
            num_yielded += isinstance(segment.end, StreamPart)

    def _num_asked(self, parts: PartList) -> int:
        """Returns for how many parts anything has asked. A call says how many it has read, not that it asks for the next."""
        return parts.num_read + (parts not in self._passed and bool(parts.places))

    def _is_cut(self, task: Task) -> bool:
        """Returns whether a task was ended before it had done what was asked of it."""
        if task.state not in (TaskState.ACTIVE, TaskState.WITHDRAWN):
            return False
        return task.parts is None or task.parts.num_parts < self._num_asked(task.parts)


def _yielded(task: Task) -> Iterator[StreamPart]:
    """Yields the parts that a task has yielded, in order, up to the first whose tensors are not there: the answer ends before it,
    since these have failed, or the client has left."""
    for segment in _taken_segments(task):
        if isinstance(segment.end, StreamPart):
            if any(argument.future.state is not READY for argument in segment.end.arguments):
                return
            yield segment.end


def _taken_segments(task: Task) -> Iterator[Segment]:
    """Yields the segments of a task's journal along the branches that were taken."""
    segment: Segment | None = task.journal
    while segment is not None:
        yield segment
        segment = segment.next_taken()


def _parts_of(parts: PartList | None) -> Sequence[Cell]:
    """Returns the places of the parts that have come."""
    return () if parts is None else parts.cells[: parts.num_parts]


def _made_by_workflow(future: Future) -> tuple[Argument, ...] | None:
    """Returns what a workflow returned, or yielded, as this future; None if nothing of that kind made it."""
    producer = future.producer
    if not isinstance(producer, Task):
        return None
    if isinstance(future, Cell):
        return future.arguments
    return producer.result if producer.future is future else None


def _refusal(calls: Iterable[Call]) -> str:
    """Returns why a request cannot be replayed."""
    for call in calls:
        error = call.future.error
        if error is None or isinstance(error, ProgramError | InvalidInputError) or raised_by(call, error)[0]:
            continue
        if _has_run(call):
            name = call.callee.own_name or call.callee.name
            return f"a call of {name!r} failed for another reason than its program: {error.code}"
    return ""


def _arguments_of(ref: Ref) -> list[Argument]:
    """Returns the tensors of a Ref."""
    fields = range(len(ref.outputs.tensors)) if ref.field is None else (ref.field,)
    return [Argument(ref.future, field, ref.views) for field in fields]


def _has_run(call: Call) -> bool:
    """Returns whether a call was sent to a replica; if not, its error came from its inputs, and comes again."""
    return call.trace is not None and bool(call.trace.batches)


def _array_of(future: Future, field: int) -> Array | None:
    """Returns the contents of a tensor that this process has at hand."""
    tensor: TensorRef = future.tensors[field]
    if tensor.dtype is DType.RESIDENT or not future.is_at_hand:
        return None if tensor.block or tensor.data is None else apply_views(tensor.data, tensor.views)
    return future.array(field)


def _times(trace: CallTrace | None) -> tuple[float, float]:
    """Returns how long a call waited for a replica, and its batch took then, in milliseconds."""
    if trace is None or not trace.batches or not trace.ended_ns:
        return 0.0, 0.0
    sent_ns = trace.batches[-1].sent_ns
    queued_ns = trace.queued_ns or sent_ns
    if queued_ns < trace.committed_ns <= sent_ns:
        queued_ns = trace.committed_ns  # as a guess, it waited for its decision, too
    return _ms(sent_ns - queued_ns), _ms(trace.ended_ns - sent_ns)


def _json(views: tuple[Index, ...]) -> tuple[list[Any], ...]:
    return tuple([json_of_index(index) for index in views]) if views else ()


def _ms(duration_ns: int) -> float:
    return round(duration_ns / 1e6, 4)
