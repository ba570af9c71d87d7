"""Where requests come from, for those that are recorded. One object for a server's HTTP, gRPC and jobs."""

import secrets
import time
from collections.abc import Iterable
from itertools import count
from typing import Any, NamedTuple, Self

from dyorc.engine.story import Step, StoryReader
from dyorc.gateway.http.errors import Header
from dyorc.gateway.requests import InferRequest
from dyorc.gateway.traceparents import UNTRACED, Traced, Tracing, begun, caller_in_headers, caller_in_metadata
from dyorc.telemetry.record import Origin, Recorder
from dyorc.trace_context import TraceContext


class Arrival(NamedTuple):
    """What the shell that read a request knows of it.

    Attributes:
        transport: ``http``, ``grpc`` or ``job``.
        arrived_ns: When its first byte came, on the monotonic clock; None: unknown.
        num_bytes: Of its body.
        read_ns: When its last byte came, as far as that is known; else when all of it had been read.
        request_id: Used if the client gave it no id.
        traced: Its place in a trace.
    """

    transport: str
    arrived_ns: int | None
    num_bytes: int
    read_ns: int
    request_id: str = ""
    traced: Traced = UNTRACED

    @classmethod
    def read_now(cls, transport: str, arrived_ns: int | None, num_bytes: int, traced: Traced) -> Self:
        """Returns the arrival of a request of which the last byte has just been read."""
        return cls(transport, arrived_ns, num_bytes, time.monotonic_ns(), traced=traced)


class Origins:
    """Decides which requests are recorded, and writes down where they come from.

    Args:
        recorder: Gets their records; None: only requests that ask for their story are recorded, and nobody gets the record.
        tracing: Decides which requests are traced; None: none.

    Attributes:
        recorder: The same.
        tracing: The same.
    """

    def __init__(self, recorder: Recorder | None = None, tracing: Tracing | None = None) -> None:
        self.recorder = recorder
        self.tracing = tracing
        self._prefix = secrets.token_hex(4)
        self._numbers = count(1)

    def wants(self, request: InferRequest) -> bool:
        """Returns whether a request is recorded. Ask once for each."""
        return request.is_explained or (self.recorder is not None and self.recorder.wants())

    def of(self, request: InferRequest, arrival: Arrival) -> Origin | None:
        """Returns the origin of a request, if it is recorded: those that are traced always are."""
        is_recorded = arrival.traced.span is not None or self.wants(request)
        return self.new(request, arrival) if is_recorded else None

    def new(self, request: InferRequest, arrival: Arrival) -> Origin:
        """Returns the origin of a request that is recorded. If its client gave it no id, one is made up."""
        return Origin(
            request_id=request.request_id or arrival.request_id or f"{self._prefix}-{next(self._numbers):x}",
            transport=arrival.transport,
            arrived_ns=arrival.arrived_ns or 0,
            read_ns=arrival.read_ns,
            num_bytes=arrival.num_bytes,
            trace=arrival.traced.caller,
            span=arrival.traced.span,
        )

    # The trace that a request belongs to. While none is traced, nobody looks for it.

    def traced_by_headers(self, headers: Iterable[Header]) -> Traced:
        """Returns the place of a request with these headers."""
        return UNTRACED if self.tracing is None else begun(self.tracing, caller_in_headers(headers))

    def traced_by_metadata(self, context: Any) -> Traced:
        """Returns the place of a request with the metadata of this gRPC call."""
        return UNTRACED if self.tracing is None else begun(self.tracing, caller_in_metadata(context.invocation_metadata()))

    def traced_below(self, caller: TraceContext | None) -> Traced:
        """Returns the place of a request below a span that is known. Without one, it was decided that it is not traced."""
        return UNTRACED if self.tracing is None or caller is None else begun(self.tracing, caller)


def steps_of(request: InferRequest, origin: Origin | None) -> list[Step] | None:
    """Returns the steps of a request so far; None if its answer comes without them."""
    if not request.is_explained or origin is None or origin.story is None:
        return None
    return origin.story.steps()


class News:
    """The steps of a request that answers in parts: each part comes with those since the one before."""

    def __init__(self, request: InferRequest, origin: Origin | None) -> None:
        self._origin = origin if request.is_explained else None
        self._reader: StoryReader | None = None

    def steps(self) -> list[Step] | None:
        """Returns the steps since the last time; None if there are none, or the answer comes without them."""
        if self._reader is None:
            if self._origin is None or self._origin.story is None:
                return None
            self._reader = StoryReader(self._origin.story)
        return self._reader.news() or None


def written(origin: Origin | None) -> None:
    """Notes that the last byte of the answer was handed to the system."""
    if origin is not None:
        origin.written_ns = time.monotonic_ns()
