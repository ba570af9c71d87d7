"""Where requests come from, if they are recorded or traced. One object for a server's HTTP, gRPC and jobs."""

import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

from dyorc.core.trace_context import TraceContext
from dyorc.engine.request_trace import Step, TraceReader
from dyorc.gateway.infer_request import InferRequest
from dyorc.gateway.request_ids import Ids, caller_in_metadata
from dyorc.telemetry.metrics.readings import Readings
from dyorc.telemetry.record import HistoryKeepers, Origin, RequestRecord, RequestRecorder, outcome_of
from dyorc.telemetry.tracing.spans import Span

_MAX_ERROR_CHARS = 1000
_MAX_NAME_CHARS = 200
_MAX_MODELS = 4096
_refusals = itertools.count(1)


class Tracing(Protocol):
    """Decides what is traced."""

    def begin(self, caller: TraceContext | None) -> TraceContext | None:
        """Returns the span of a request that has come, if it is to be traced."""
        ...

    def send(self, span: Span) -> None:
        """Sends a span that is not part of a request."""
        ...

    def measure(self, readings: Readings) -> None: ...


class Traced(NamedTuple):
    """A request's place in a trace.

    Attributes:
        caller: The caller's span, if it sent one.
        span: The request's own span, if it is traced.
    """

    caller: TraceContext | None
    span: TraceContext | None


UNTRACED = Traced(None, None)


def place_in_trace(tracing: Tracing, caller: TraceContext | None) -> Traced:
    """Returns the place of a request that has come."""
    span = tracing.begin(caller)
    return UNTRACED if span is None and caller is None else Traced(caller, span)


class Arrival(NamedTuple):
    """How a request arrived.

    Attributes:
        transport: ``http``, ``grpc`` or ``job``.
        ids: By which the request is known; the id in its body may still be missing.
        arrived_ns: When its first byte came, on the monotonic clock; None: unknown.
        num_bytes: Size of its body.
        read_ns: When its last byte came, if known; otherwise when all of it had been read.
        traced: Its place in a trace.
    """

    transport: str
    ids: Ids
    arrived_ns: int | None
    num_bytes: int
    read_ns: int
    traced: Traced = UNTRACED

    @classmethod
    def read_now(cls, transport: str, ids: Ids, arrived_ns: int | None, num_bytes: int) -> Self:
        """Returns the arrival of a request whose last byte has just been read."""
        return cls(transport, ids, arrived_ns, num_bytes, time.monotonic_ns())

    def traced_as(self, traced: Traced) -> Self:
        return self._replace(traced=traced)


class Origins:
    """Decides which requests are recorded, and notes where they come from.

    Args:
        recorder: Gets their records; None: only requests that ask for their trace are recorded, and only they get it.
        tracing: Decides which requests are traced; None: none.
        histories: Decides which requests have their histories kept; None: none have.

    Attributes:
        num_refused: How many requests were refused, by the model that they asked for.
    """

    def __init__(
        self,
        recorder: RequestRecorder | None = None,
        tracing: Tracing | None = None,
        histories: HistoryKeepers | None = None,
    ) -> None:
        self.recorder = recorder
        self._histories = histories
        self._keeps_history, self._is_recorded = False, True
        self.tracing = tracing
        self.num_refused = Counter[str]()

    def wants(self, request: InferRequest, traced: Traced) -> bool:
        """Returns whether to record a request: always if it is traced, or its history is kept. Call it once for each, before
        `new`."""
        self._keeps_history = self._histories is not None and self._histories.draws()
        self._is_recorded = (
            traced.span is not None or request.is_explained or (self.recorder is not None and self.recorder.wants())
        )
        return self._is_recorded or self._keeps_history

    def of(self, request: InferRequest, arrival: Arrival, *, is_named: bool = False) -> Origin | None:
        """Returns the origin of a request, if it is recorded.

        Args:
            is_named: Whether it keeps its id, even if its body has another.
        """
        if request.request_id and not is_named:
            arrival.ids.name(request.request_id)
        if self.wants(request, arrival.traced):
            return self.new(arrival)
        arrival.ids.is_left_out = True
        return None

    def new(self, arrival: Arrival) -> Origin:
        """Returns the origin of a request that is recorded."""
        ids, traced = arrival.ids, arrival.traced
        if (place := traced.span or traced.caller) is not None:
            ids.trace_id = place.trace_id
        ids.origin = origin = Origin(
            request_id=ids.request_id,
            transport=arrival.transport,
            arrived_ns=arrival.arrived_ns or 0,
            read_ns=arrival.read_ns,
            num_bytes=arrival.num_bytes,
            trace=traced.caller,
            span=traced.span,
            histories=self._histories if self._keeps_history else None,
            is_recorded=self._is_recorded,
        )
        self._keeps_history, self._is_recorded = False, True
        return origin

    def record_refusal(self, arrival: Arrival, error: Exception, workflow: Callable[[], str], tenant: str = "") -> None:
        """Counts and records a request that failed before the orchestrator had it. Does nothing if it came further: then the
        orchestrator has counted it, and recorded it if need be.

        Args:
            workflow: Returns the model that it asked for, which may not exist.
            tenant: Its tenant, if known.
        """
        ids = arrival.ids
        if ids.was_submitted:
            return
        self._count_refusal(workflow())
        if self.recorder is None or ids.is_left_out:
            return
        outcome = outcome_of(error)
        self.recorder.refused(
            outcome,
            lambda: RequestRecord(
                number=-next(_refusals),
                origin=ids.origin or self._late(arrival),
                workflow=workflow()[:_MAX_NAME_CHARS],
                tenant=tenant,
                started_ns=(now_ns := time.monotonic_ns()),
                ended_ns=now_ns,
                outcome=outcome,
                error=str(error)[:_MAX_ERROR_CHARS],
                trace_id=ids.trace_id,
            ),
        )

    def _count_refusal(self, model: str) -> None:
        if model in self.num_refused or len(self.num_refused) < _MAX_MODELS:  # clients choose the names
            self.num_refused[model] += 1

    def _late(self, arrival: Arrival) -> Origin:
        """Returns the origin of a request that was refused, perhaps before it was decided whether it is traced."""
        caller, tracing = arrival.ids.caller, self.tracing
        if tracing is None or arrival.traced is not UNTRACED:
            return self.new(arrival)
        return self.new(arrival.traced_as(place_in_trace(tracing, caller)))

    # The trace that a request belongs to. Without tracing, its headers are not searched for one.

    def traced(self, caller: TraceContext | None) -> Traced:
        """Returns the place of a request that has come by HTTP."""
        return UNTRACED if self.tracing is None else place_in_trace(self.tracing, caller)

    def traced_by_metadata(self, context: Any) -> Traced:
        """Returns the place of a request with the metadata of this gRPC call."""
        return (
            UNTRACED if self.tracing is None else place_in_trace(self.tracing, caller_in_metadata(context.invocation_metadata()))
        )

    def traced_below(self, caller: TraceContext | None) -> Traced:
        """Returns the place of a request below a known span. Without one, the request is not traced."""
        return UNTRACED if self.tracing is None or caller is None else place_in_trace(self.tracing, caller)


def steps_of(request: InferRequest, origin: Origin | None) -> list[Step] | None:
    """Returns the steps of a request so far; None if its answer comes without them."""
    if not request.is_explained or origin is None or origin.story is None:
        return None
    return origin.story.steps()


class NewSteps:
    """The steps of a request that answers in parts: each part comes with the steps since the last one."""

    def __init__(self, request: InferRequest, origin: Origin | None) -> None:
        self._origin = origin if request.is_explained else None
        self._reader: TraceReader | None = None

    def steps(self) -> list[Step] | None:
        """Returns the steps since the last call; None if there are no new ones, or the answer comes without them."""
        if self._reader is None:
            if self._origin is None or self._origin.story is None:
                return None
            self._reader = TraceReader(self._origin.story)
        return self._reader.new_steps() or None


def note_written(origin: Origin | None) -> None:
    """Notes that the last byte of the answer was handed to the system."""
    if origin is not None:
        origin.written_ns = time.monotonic_ns()
