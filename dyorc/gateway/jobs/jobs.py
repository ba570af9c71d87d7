"""Durable jobs, as the routes use them. Accepts requests and reports on them, while the runner runs them."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any, Self

import structlog

from dyorc.config import JobsConfig
from dyorc.core.trace_context import TraceContext
from dyorc.errors import CapacityError, InvalidInputError, StoreError, UnsupportedError
from dyorc.gateway.jobs.job_json import read_head, terms_of
from dyorc.gateway.jobs.runner import JobRunner
from dyorc.gateway.jobs.webhooks import Webhooks, check_webhook
from dyorc.gateway.origins import Tracing
from dyorc.gateway.service import InferenceService
from dyorc.gateway.tenants import Tenant
from dyorc.protocol.header_names import Header
from dyorc.protocol.job_records import JobState
from dyorc.store.base import Body, JobStore, NewJob, StoredJob, new_id
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.readings import Readings
from dyorc.telemetry.tracing.spans import Span, SpanKind

_log = structlog.get_logger("dyorc.jobs")

_POLL_S = 0.5
"""How often the store is checked while a client waits for a job, since another server may have ended it."""


class Jobs:
    """Accepts jobs and runs them while entered.

    If it opens the store itself and cannot, everything else is still served: each call here is refused, and the log says why.

    Args:
        is_store_open: Whether the caller has opened the store, and closes it after this.

    Attributes:
        service: Runs requests.
    """

    def __init__(self, service: InferenceService, store: JobStore, config: JobsConfig, *, is_store_open: bool = False) -> None:
        self.service = service
        self._config = config
        self._store = store
        self._is_store_open = is_store_open
        self._closed: str | None = "the server takes no jobs yet"
        self._is_draining = False
        self._ends: dict[str, list[asyncio.Event]] = {}
        self._runner = JobRunner(service, store, config, self._on_end)
        self._webhooks = Webhooks(store, config)
        self._num_submitted = 0

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            try:
                if not self._is_store_open:
                    await stack.enter_async_context(self._store)
            except StoreError as error:
                self._closed = str(error)
                _log.warning("no_jobs", error=error.detail)
            else:
                await stack.enter_async_context(self._webhooks)
                await stack.enter_async_context(self._runner)
                self._closed = None
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = self._closed or "the server is stopping"
        await self._stack.aclose()

    async def drain(self, timeout_s: float) -> None:
        """Begins no more jobs, gives repeatable ones back, and waits up to `timeout_s` for the others. Requests that wait for a
        job's end are answered with its state now."""
        self._is_draining = True
        for ended in [event for events in self._ends.values() for event in events]:
            ended.set()
        if self.is_open:
            await self._runner.drain(timeout_s)

    @property
    def is_open(self) -> bool:
        """Whether the store could be opened."""
        return self._closed is None

    async def submit(
        self,
        tenant: Tenant,
        body: Body,
        idempotency_key: str = "",
        caller: TraceContext | None = None,
        headers: Iterable[Header] = (),
    ) -> tuple[StoredJob, bool]:
        """Accepts a job. Returns it, and whether it is new.

        Args:
            caller: The caller's span, if it sent one.
            headers: Of the request, which may pick the version.

        Raises:
            ConflictError: If the key was used for another body.
            PermissionDeniedError: If the tenant may not use the model, or not with this priority.
            TenantLimitError: If too many of the tenant's jobs wait, or they take too much of the store.
            CapacityError: If all jobs together take too much.
            UnsupportedError: If the model streams, or the request names client memory.
            DyOrcError: See `InferenceService.model` and `decode_request`; 503 if the store cannot be used.
        """
        store, began_ns = self._open_store(), time.monotonic_ns()
        head = read_head(body)
        model = self.service.model(tenant, head.model_name, head.model_version, headers)
        if model.is_streaming:
            raise UnsupportedError(f"model {model.name!r} answers in parts, which a job cannot keep; ask for it by infer_stream")
        if head.webhook is not None:
            check_webhook(head.webhook, self._config)
        with self._runner.attempts.memory() as memory:
            request = self._runner.attempts.read(body, model, memory)
        tenant.check_priority(request.priority)
        tracing = self.service.origins.tracing
        trace = _trace_for(tracing, caller)
        new = NewJob(
            id=new_id(),
            tenant=tenant.name,
            model_name=model.name,
            model_version=model.version,
            body=body,
            ttl_s=self._ttl_s(head.ttl_s),
            is_urgent=request.priority > 0,
            terms=terms_of(tenant, trace),
            webhook=head.webhook or "",
            idempotency_key=idempotency_key,
        )
        job, is_new = await store.submit(new, self._runner.quota)
        self._num_submitted += is_new
        self._runner.wake()
        if tracing is not None and trace is not None and trace is not caller and is_new:
            _send_span(tracing, job, trace, caller, began_ns)
        return job, is_new

    def _ttl_s(self, requested_s: float | None) -> float:
        ttl_s = self._config.ttl_s if requested_s is None else requested_s
        if requested_s is not None and not 0 < ttl_s <= self._config.max_ttl_s:
            raise InvalidInputError(f"ttl_s is {ttl_s}, expected more than 0 and at most {self._config.max_ttl_s} seconds")
        return ttl_s

    def report(self) -> dict[str, Any]:
        """Returns the current state, as plain values."""
        return {"closed": self._closed, **self._runner.report()}

    def measure(self, readings: Readings) -> None:
        """Adds what metrics show of them."""
        readings.add(catalogue.JOBS_SUBMITTED, self._num_submitted)
        self._runner.measure(readings)

    async def get(self, tenant: Tenant, job_id: str, wait_s: float = 0.0) -> StoredJob:
        """Returns a job once it has ended, or after `wait_s` seconds, or when the server stops.

        Raises:
            UnknownJobError: If the tenant has no job of this id.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_s
        ended = asyncio.Event()
        self._ends.setdefault(job_id, []).append(ended)
        try:
            while True:
                job = await self._open_store().get(tenant.name, job_id)
                left_s = until_s - loop.time()
                if job.state.is_final or left_s <= 0 or self._is_draining:
                    return job
                await _wait(ended, min(left_s, _POLL_S))
                ended.clear()
        finally:
            self._ends[job_id].remove(ended)
            if not self._ends[job_id]:
                del self._ends[job_id]

    async def result(self, tenant: Tenant, job_id: str) -> tuple[StoredJob, Body | None]:
        """Returns a job and its result, if it has one.

        Raises:
            UnknownJobError: If the tenant has no job of this id.
        """
        store = self._open_store()
        job = await store.get(tenant.name, job_id)
        has_result = job.state is JobState.SUCCEEDED
        return job, await store.result(tenant.name, job_id) if has_result else None

    async def page(self, tenant: Tenant, state: JobState | None, limit: int, after: str) -> list[StoredJob]:
        """Returns a tenant's jobs, the newest first."""
        return await self._open_store().page(tenant.name, state, limit, after)

    async def cancel(self, tenant: Tenant, job_id: str) -> StoredJob:
        """Cancels a job that has not ended.

        Raises:
            UnknownJobError: If the tenant has no job of this id.
        """
        job = await self._open_store().cancel(tenant.name, job_id)
        if job.state is JobState.CANCELLED:
            self._runner.drop(job_id)
            self._on_end(job_id)
        return job

    async def delete(self, tenant: Tenant, job_id: str) -> None:
        """Ends and forgets a job.

        Raises:
            UnknownJobError: If the tenant has no job of this id.
        """
        await self._open_store().delete(tenant.name, job_id)
        self._runner.drop(job_id)
        self._on_end(job_id)

    def _open_store(self) -> JobStore:
        if self._closed is not None:
            raise CapacityError(f"jobs are not available now: {self._closed}")
        return self._store

    def _on_end(self, job_id: str) -> None:
        for ended in self._ends.get(job_id, ()):
            ended.set()
        self._webhooks.wake()


def _trace_for(tracing: Tracing | None, caller: TraceContext | None) -> TraceContext | None:
    """Returns what a job keeps of a trace: its submission's own span if it is traced, or else its caller's."""
    return (None if tracing is None else tracing.begin(caller)) or caller


def _send_span(tracing: Tracing, job: StoredJob, trace: TraceContext, caller: TraceContext | None, began_ns: int) -> None:
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


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
