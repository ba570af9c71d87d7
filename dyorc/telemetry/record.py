"""The record of one request, and the contracts of the objects that make and read records."""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from dyorc.core.request import Terms
from dyorc.core.trace_context import TraceContext
from dyorc.engine.model.journal_keeper import JournalKeeper
from dyorc.engine.request_trace import RequestTrace
from dyorc.errors import DyOrcError, InternalError


class HistoryKeepers(Protocol):
    """Decides whose history is kept."""

    def draws(self) -> bool:
        """Returns whether the next request belongs to the fraction whose history is kept."""
        ...

    def keeper(self, request_id: str, terms: Terms) -> JournalKeeper | None:
        """Returns what gets the journal of a request; None if its history is not kept after all."""
        ...


class Origin(msgspec.Struct, kw_only=True, eq=False, gc=False):
    """Where a request came from. The gateway makes it; all times are of the monotonic clock, in nanoseconds; 0: unknown.

    Attributes:
        request_id: As its client knows it: given by the client, or made up by the gateway.
        transport: ``http``, ``grpc``, ``job``, or ``shadow`` for the copy of a request.
        trace: The caller's span, if it sent one.
        span: The request's own span, if it was decided on arrival that it is traced.
        arrived_ns: When its first byte came.
        read_ns: When its last byte came.
        written_ns: When the last byte of the answer was handed to the system; set after the record was made, if ever.
        num_bytes: Of its body.
        attributes: What its span says besides, by the names that OpenTelemetry has for it.
        story: What happens to the request, from when it was handed to the orchestrator.
        histories: Keeps its history; None: nothing does.
        is_recorded: Whether there is to be a record of it, besides its history.
    """

    request_id: str
    transport: str
    trace: TraceContext | None = None
    span: TraceContext | None = None
    arrived_ns: int = 0
    read_ns: int = 0
    written_ns: int = 0
    num_bytes: int = 0
    attributes: dict[str, Any] = {}
    story: RequestTrace | None = None
    histories: HistoryKeepers | None = None
    is_recorded: bool = True


class RequestRecord(msgspec.Struct, kw_only=True, eq=False, gc=False):
    """A request that has ended. Times are of the monotonic clock, in nanoseconds.

    Attributes:
        number: The engine's number for it; batches name their requests by these. Negative if it was refused.
        started_ns: When it was handed to the orchestrator, or refused.
        ended_ns: When its receiver had the answer or the error.
        outcome: ``ok``, or the name of its error (`dyorc.errors`), as error bodies have it.
        error: The error's text.
        trace_id: Of its trace: the caller's, or a new one; empty if it is not traced.
        story: What the engine did; None if the request was refused before.
    """

    number: int
    origin: Origin
    workflow: str
    tenant: str
    started_ns: int
    ended_ns: int
    outcome: str
    error: str = ""
    trace_id: str = ""
    story: RequestTrace | None = None

    @property
    def arrived_ns(self) -> int:
        """When its first byte came, or else when it was handed to the orchestrator."""
        return self.origin.arrived_ns or self.started_ns

    @property
    def done_ns(self) -> int:
        """When the last byte of its answer was handed to the system, as far as that is known; else its end."""
        return max(self.ended_ns, self.origin.written_ns)

    @property
    def duration_ns(self) -> int:
        """From its first byte until it was done."""
        return self.done_ns - self.arrived_ns

    @property
    def was_refused(self) -> bool:
        """Whether it ended before the orchestrator had it."""
        return self.story is None

    @property
    def has_failed(self) -> bool:
        """Whether it ended with an error."""
        return self.outcome != "ok"


def outcome_of(error: Exception | None) -> str:
    """Returns the outcome of a request that ended with this error, or without one."""
    if error is None:
        return "ok"
    return error.code if isinstance(error, DyOrcError) else InternalError.code


class RequestRecorder(Protocol):
    """Gets the records of requests. Called on the event loop."""

    def wants(self) -> bool:
        """Returns whether the next request is recorded."""
        ...

    def ended(self, record: RequestRecord) -> None:
        """Takes the record of a request that has ended. Must not raise."""
        ...

    def refused(self, outcome: str, record: Callable[[], RequestRecord]) -> None:
        """Learns of a refused request, and makes its record if a sink wants it. Must not raise."""
        ...


class Sink(Protocol):
    """Reads records of requests."""

    def take(self, record: RequestRecord) -> None:
        """Takes a record. Called on the event loop for every request that ends, so it has to be quick. It must not raise."""
        ...
