"""One attempt at a job: reads, runs and answers its request as if it had just come by HTTP, and decides how the job goes on."""

import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import structlog

from dyorc.config import JobsConfig
from dyorc.errors import (
    ClientMemoryDisabledError,
    DyOrcError,
    EffectLostError,
    ExecutionError,
    ScaledToZeroError,
    UnknownModelError,
    UnsupportedError,
)
from dyorc.gateway.admission import Ticket
from dyorc.gateway.catalog import Model
from dyorc.gateway.client_memory import ClientMemory
from dyorc.gateway.codec.inference_json import decode_request
from dyorc.gateway.codec.json_outputs import encode_response
from dyorc.gateway.copies import join_buffers
from dyorc.gateway.infer_request import InferRequest
from dyorc.gateway.jobs.job_json import job_error, read_head, trace_of
from dyorc.gateway.origins import Arrival, steps_of
from dyorc.gateway.request_ids import Ids
from dyorc.gateway.request_memory import RequestMemory
from dyorc.gateway.request_senders import KnownSender
from dyorc.gateway.service import InferenceService
from dyorc.store.base import Body, Claim, Outcome

_log = structlog.get_logger("dyorc.jobs")

_FIRST_DELAY_S = 0.5
_MAX_DELAY_S = 60.0
_OFF_DELAY_S = 5.0
"""The delay of a job whose program was scaled to zero replicas by hand."""


class RetryLater(NamedTuple):
    """The job should be tried again later. `is_counted`: whether this attempt counts."""

    delay_s: float
    is_counted: bool = True


Ending: TypeAlias = Outcome | RetryLater


class Attempts:
    """Runs jobs, one attempt per call."""

    def __init__(self, service: InferenceService, config: JobsConfig) -> None:
        self._service = service
        self._config = config
        self._no_memory = ClientMemory(False)

    def memory(self) -> RequestMemory:
        """Returns the memory for a job's tensors. Never its client's: that may be gone when the job runs."""
        return RequestMemory(self._service.backend.tensors, self._no_memory, self._service.config.max_request_bytes)

    def read(self, body: Body, model: Model, memory: RequestMemory) -> InferRequest:
        """Reads a job's request.

        Raises:
            UnsupportedError: If it names client memory.
            DyOrcError: See `decode_request`.
        """
        try:
            return decode_request(body.data, body.json_bytes, model, memory, is_job=True)
        except ClientMemoryDisabledError as error:
            raise UnsupportedError("a job cannot use shared memory of its client, which may be gone when it runs") from error

    def is_repeatable(self, claim: Claim) -> bool:
        """Returns whether a job that may have run can safely run again: each program of its version is pure or idempotent. Of a
        version that is gone nobody knows."""
        model = self._service.catalog.versions.get(claim.job.model_name, {}).get(claim.job.model_version)
        return model is not None and model.is_repeatable

    def effect_lost(self, claim: Claim, num_attempts: int, *, has_stopped: bool = False) -> Outcome:
        """Ends a job that may have run and must not run again.

        Args:
            has_stopped: Whether its server is this one, which stops; else it was another one, which died.
        """
        name, version = claim.job.model_name, claim.job.model_version
        if version in self._service.catalog.versions.get(name, {}):
            reason = f"model {name!r} calls a program that must not be repeated"
        else:
            reason = f"version {version!r} of model {name!r} has left, so it is not known whether it may run again"
        end = "stopped before the job had ended" if has_stopped else "died"
        error = EffectLostError(f"the server that ran the job {end}, and {reason}")
        return Outcome(num_attempts=num_attempts, error=job_error(error))

    def _model_of(self, claim: Claim) -> Model:
        """Returns the version that a job runs: the one that it got when it was submitted. If that has left meanwhile, and the
        client has named none, the version that requests get now.

        Raises:
            UnknownModelError: If there is none.
        """
        job, catalog = claim.job, self._service.catalog
        try:
            return catalog.model(job.model_name, job.model_version)
        except UnknownModelError:
            if read_head(claim.body).model_version is not None:
                raise
            return catalog.model(job.model_name)

    async def run(self, claim: Claim, ticket: Ticket, effect_begins: Callable[[], None]) -> Ending:
        """Makes an attempt, unless there have been too many.

        Args:
            effect_begins: Called before the job may have an effect that must not be repeated.
        """
        num_attempts = claim.job.num_attempts
        if num_attempts > 1 and not self.is_repeatable(claim):
            return self.effect_lost(claim, num_attempts - 1)
        if num_attempts > self._config.max_attempts:
            error = ExecutionError(f"given up after {num_attempts - 1} attempts: each time, the server that ran it died")
            return Outcome(num_attempts=num_attempts - 1, error=job_error(error))
        now_ns = time.monotonic_ns()
        arrival = Arrival("job", Ids(claim.job.id), now_ns, len(claim.body.data), now_ns)
        try:
            return Outcome(num_attempts=num_attempts, result=await self._infer(claim, ticket, arrival, effect_begins))
        except DyOrcError as error:
            self._service.origins.record_refusal(arrival, error, lambda: claim.job.model_name, claim.job.tenant)
            if isinstance(error, ScaledToZeroError) and self.is_repeatable(claim):  # the program may be scaled up again
                return RetryLater(_OFF_DELAY_S, is_counted=False)
            if error.retryable and num_attempts < self._config.max_attempts and self.is_repeatable(claim):
                return RetryLater(_delay_s(num_attempts, error.retry_after_s or 0.0))
            return Outcome(num_attempts=num_attempts, error=job_error(error))
        except Exception as error:
            _log.exception("job_crashed", request_id=claim.job.id, model=claim.job.model_name)
            return Outcome(num_attempts=num_attempts, error=job_error(error))

    async def _infer(self, claim: Claim, ticket: Ticket, arrival: Arrival, effect_begins: Callable[[], None]) -> Body:
        model = self._model_of(claim)
        ticket.sender = KnownSender(arrival.ids)
        with self.memory() as memory:
            request = self.read(claim.body, model, memory)
            origins = self._service.origins
            origin = origins.of(request, arrival.traced_as(origins.traced_below(trace_of(claim.job))), is_named=True)

            def take(arrays: list[Any]) -> Body:
                parts, json_bytes = encode_response(model, request.request_id, request.outputs, arrays, steps_of(request, origin))
                return Body(join_buffers(parts), json_bytes)

            return await self._service.infer(
                ticket, model, request, memory, origin=origin, waits_for_effects=True, effect_begins=effect_begins, take=take
            )


def _delay_s(num_attempts: int, at_least_s: float) -> float:
    """Returns a delay that doubles with each attempt; its jitter spreads jobs that failed together."""
    delay_s = min(_MAX_DELAY_S, _FIRST_DELAY_S * 2.0 ** (num_attempts - 1))
    return max(at_least_s, delay_s * random.uniform(0.5, 1.0))
