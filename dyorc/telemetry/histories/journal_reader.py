"""Makes a history of a request's journal, before the engine forgets it. For the event loop's thread; reads, and changes nothing.

Only branches that were taken count: what was guessed and not needed is in no history.
"""

import time
from collections.abc import Collection, Iterator
from typing import Any

from dyorc.core.arrays import Array, apply_views
from dyorc.core.tensor import DType, Index, TensorRef
from dyorc.engine.model.futures import FAILED, READY, Argument, Future
from dyorc.engine.model.journal import BranchPoint, Segment, StreamPart
from dyorc.engine.model.program_call import Call
from dyorc.engine.model.request_tree import Request, Task
from dyorc.engine.request_trace import CallTrace
from dyorc.errors import DyOrcError, InvalidInputError, ProgramError, bounded
from dyorc.telemetry.histories.history import (
    CONSTANT,
    FORMAT,
    INPUT,
    HistoryCall,
    HistoryDecision,
    KeptTensor,
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
        max_value_bytes: Larger tensors are kept without their bytes.
        redacted: Names of inputs and parameters whose values are not kept.

    Attributes:
        num_kept_bytes: Bytes of the tensors that it has kept.
    """

    def __init__(self, request: Request, root: Task, max_value_bytes: int, redacted: Collection[str] = ()) -> None:
        self._request = request
        self._root = root
        self._max_value_bytes = max_value_bytes
        self.num_kept_bytes = 0
        signature = root.callee.signature
        self._redacted = tuple([name for name in signature.names() if name in redacted])
        self._places: dict[Future, tuple[int, int]] = {}
        """Where each future is: its call, or `INPUT`; and the number of its first tensor there."""
        self._constants: list[KeptTensor] = []

    def read(self, request_id: str, error: DyOrcError | None, ended_ns: int) -> RequestHistory:
        """Returns the history of the request, which has ended, with this error or an answer."""
        root, context = self._root, self._request.context
        name, _, version = root.name.partition("@")
        inputs = dict(self._inputs())
        entries = list(_taken_entries(root))
        calls = [entry for entry in entries if isinstance(entry, Call)]
        for at, call in enumerate(calls):
            self._places[call.future] = at, 0
        info = context.request_info()
        return RequestHistory(
            request_id=request_id or info.id,
            workflow=name,
            version=version or "1",
            code=root.callee.code,
            at_s=round(time.time(), 3),
            duration_ms=_ms(ended_ns - self._request.arrived_ns),
            inputs=inputs,
            statics=self._statics(),
            defaults=tuple([name for name in self._defaults() if name not in self._redacted]),
            redacted=self._redacted,
            tenant=context.tenant,
            priority=context.terms.priority,
            headers=tuple(info.headers.items()),
            calls=[self._call(call) for call in calls],
            decisions=[self._decision(entry) for entry in entries if isinstance(entry, BranchPoint)],
            answer=tuple([source for argument in root.result for source in self._sources(argument)]) if error is None else (),
            constants=self._constants,
            error=() if error is None else (error.code, bounded(str(error))),
            refusal=_refusal(root, calls, self._request),
            format=FORMAT,
        )

    def _inputs(self) -> Iterator[tuple[str, KeptTensor]]:
        for at, (spec, argument) in enumerate(zip(self._root.callee.signature.inputs, self._root.arguments, strict=True)):
            future = argument.future
            self._places[future] = INPUT, at
            yield spec.name, self._kept(future, 0, is_redacted=spec.name in self._redacted)

    def _statics(self) -> dict[str, Any]:
        specs = self._root.callee.signature.statics
        values = zip(specs, self._root.statics, strict=True)
        return {spec.name: value for spec, value in values if spec.name not in self._redacted}

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

    def _call(self, call: Call) -> HistoryCall:
        program, future = call.callee, call.future
        queue_ms, compute_ms = _times(call.trace)
        kept = HistoryCall(
            program.own_name or program.name,
            tuple([source for argument in call.arguments for source in self._sources(argument)]),
            digest_of_statics(call.statics),
            is_effect=not program.options.pure,
            queue_ms=queue_ms,
            compute_ms=compute_ms,
        )
        if future.state is READY and not call.callee.is_streaming:
            kept.outputs = tuple([self._kept(future, at) for at in range(len(future.tensors))])
        elif future.state is FAILED and _has_run(call):
            match future.error:
                case ProgramError(error_type=error_type, message=message):
                    kept.error = error_type, bounded(message)
                case error:
                    kept.error = "", bounded(str(error))
        return kept

    def _decision(self, point: BranchPoint) -> HistoryDecision:
        decision = point.decision
        ref = decision.ref
        fields = range(len(ref.outputs.tensors)) if ref.field is None else (ref.field,)
        arguments = [Argument(ref.future, field, ref.views) for field in fields]
        return HistoryDecision(
            str(decision.site),
            decision.kind.value,
            tuple([source for argument in arguments for source in self._sources(argument)]),
            text_of_outcome(point.outcome) if point.error is None else f"an error: {bounded(str(point.error))}",
        )

    def _kept(self, future: Future, field: int, *, is_redacted: bool = False, needs_digest: bool = False) -> KeptTensor:
        tensor = future.tensors[field]
        array = _array_of(future, field)
        if array is None:
            return KeptTensor(tensor.dtype, tensor.shape)
        left_bytes = MAX_VALUES * self._max_value_bytes - self.num_kept_bytes
        max_bytes = min(self._max_value_bytes, left_bytes)
        kept = KeptTensor.of(array, max_bytes=max_bytes, is_redacted=is_redacted, needs_digest=needs_digest)
        self.num_kept_bytes += len(kept.data or b"")
        return kept

    def _sources(self, argument: Argument) -> list[TensorSource]:
        """Returns where an argument's tensor comes from, through the results of workflows; nothing if there is none, as one that
        was called has failed."""
        future, field, views = argument.future, argument.field, argument.views
        while isinstance(future.producer, Task) and future.producer.future is future:
            result = future.producer.result
            if field >= len(result) or len(views) > _MAX_VIEWS:
                return []
            future, field, views = result[field].future, result[field].field, (*result[field].views, *views)
        place = self._places.get(future)
        if place is not None:
            call, first = place
            return [TensorSource(call, first + field, _json(views))]
        if future.producer is not None or not future.tensors:
            return []
        self._constants.append(self._kept(future, field, is_redacted=bool(self._redacted), needs_digest=True))
        return [TensorSource(CONSTANT, len(self._constants) - 1, _json(views))]


def _taken_entries(task: Task) -> Iterator[Call | BranchPoint]:
    """Yields the calls and decisions of a task and of the tasks that it called, in the order of the journal."""
    pending: list[Iterator[Call | Task | BranchPoint]] = [_own_entries(task.journal)]
    while pending:
        entry = next(pending[-1], None)
        if entry is None:
            pending.pop()
        elif isinstance(entry, Task):
            pending.append(_own_entries(entry.journal))
        else:
            yield entry


def _own_entries(journal: Segment) -> Iterator[Call | Task | BranchPoint]:
    segment: Segment | None = journal
    while segment is not None:
        yield from segment.entries
        if isinstance(segment.end, BranchPoint) and segment.end.is_resolved:
            yield segment.end
        segment = segment.next_taken()


def _refusal(root: Task, calls: list[Call], request: Request) -> str:
    """Returns why a request cannot be replayed."""
    if root.callee.is_streaming or isinstance(root.journal.end, StreamPart):
        return "it answers in parts"
    for call in calls:
        name = call.callee.own_name or call.callee.name
        if call.callee.is_streaming or call.streams:
            return f"program {name!r} reads or yields a stream"
        if call.callee.signature.takes_residents or call.callee.signature.outputs.has_residents:
            return f"program {name!r} keeps residents"
        error = call.future.error
        if error is not None and not isinstance(error, ProgramError | InvalidInputError) and _has_run(call):
            return f"a call of {name!r} failed for another reason than its program: {error.code}"
    if request.yielding:
        return "a workflow that it calls yields a stream"
    return ""


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
