"""The span of a job's submission. The job's attempts stand below it, whenever and on whichever server they run."""

import time

from dyorc.core.trace_context import TraceContext
from dyorc.gateway.origins import Tracing
from dyorc.store.base import StoredJob
from dyorc.telemetry.tracing.spans import Span, SpanKind


def trace_for(tracing: Tracing | None, caller: TraceContext | None) -> TraceContext | None:
    """Returns what a job keeps of a trace: its submission's own span if it is traced, or else its caller's."""
    return (None if tracing is None else tracing.begin(caller)) or caller


def send_span(tracing: Tracing, job: StoredJob, trace: TraceContext, caller: TraceContext | None, began_ns: int) -> None:
    """Sends the span of a job's submission."""
    attributes = {"dyorc.workflow": job.model_name, "dyorc.job": job.id, "messaging.operation.type": "send"}
    if job.tenant:
        attributes["dyorc.tenant"] = job.tenant
    tracing.send(
        Span(
            name=f"submit {job.model_name}",
            context=trace,
            parent=caller,
            started_ns=began_ns,
            ended_ns=time.monotonic_ns(),
            kind=SpanKind.PRODUCER,
            attributes=attributes,
        )
    )
