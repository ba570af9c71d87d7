"""Claims jobs when there is room for them, runs them, and stores how they ended.

A claim is renewed three times per lease. A server that dies stops renewing, and another one, or the same after a restart, takes
over its jobs when the lease ends. A job whose claim is lost is dropped at once. A server that has not come to renew its claims in
time, because its machine slept or its clock was set, may claim a job that it is running: then it goes on.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Self

import structlog

from dyorc.config import JobsConfig
from dyorc.errors import CapacityError, PayloadTooLargeError, StoreError
from dyorc.gateway.admission import Ticket
from dyorc.gateway.jobs.attempts import Attempts, Ending, RetryLater
from dyorc.gateway.jobs.job_json import job_error, tenant_of
from dyorc.gateway.jobs.job_slots import JobSlot, JobSlots
from dyorc.gateway.service import InferenceService
from dyorc.protocol.job_records import JobState
from dyorc.store.base import Claim, JobStore, Outcome, Quota
from dyorc.system.log_throttle import LogThrottle
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.readings import Readings

_log = structlog.get_logger("dyorc.jobs")

_POLL_S = 1.0
_BLOCKED_POLL_S = 0.25
"""When to look for other lanes while the known ones may have no more slots."""
_RETRY_S = 0.5
"""When to try again to reach a store that failed."""
_WRITE_S = 3.0
"""How long the store may take to write how the last jobs ended."""
_EXPIRE_PERIOD_S = 5.0
_MAX_EXPIRED = 1000


class _Run:
    """A claimed job that is running. Only its attempt is ever interrupted, not the writing of its end.

    Attributes:
        has_effect: Whether it may have had an effect that must not be repeated.
    """

    def __init__(self, claim: Claim, slot: JobSlot) -> None:
        self.claim = claim
        self.slot = slot
        self.is_dropped = False
        self.has_effect = False
        self._attempt: asyncio.Task[Ending] | None = None

    async def attempt(self, attempts: Attempts, ticket: Ticket) -> Ending | None:
        """Returns how the attempt ended; None if it was dropped."""
        if self.is_dropped:
            return None
        self._attempt = asyncio.create_task(attempts.run(self.claim, ticket, self._effect_begins))
        await asyncio.wait((self._attempt,))
        return None if self._attempt.cancelled() else self._attempt.result()

    def _effect_begins(self) -> None:
        self.has_effect = True

    def drop(self) -> bool:
        """Stops it. Returns whether it was still running."""
        self.is_dropped = True
        return self._attempt is not None and self._attempt.cancel()


class JobRunner:
    """Runs jobs while entered. The store must be open.

    Args:
        on_end: Called with the id of each job that ended here.
    """

    def __init__(self, service: InferenceService, store: JobStore, config: JobsConfig, on_end: Callable[[str], None]) -> None:
        self._service = service
        self._store = store
        self._config = config
        self._on_end = on_end
        self.attempts = Attempts(service, config)
        self.quota = Quota(max_queued=config.max_queued, max_tenant_bytes=config.max_bytes_per_tenant, max_bytes=config.max_bytes)
        self._catalog = service.catalog
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self._runs: dict[str, _Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_room = asyncio.Event()
        self._is_stopping = asyncio.Event()
        self._is_over = asyncio.Event()
        self._is_down = False
        self._down = LogThrottle(_log, "job_store_down", recovery="job_store_back")
        self._slots = JobSlots(config.max_running)
        self._num_bytes: int | None = None
        self._num_queued: int | None = None
        self._num_retried = 0
        self._unwritten = LogThrottle(_log, "job_not_written", recovery="jobs_written_again")
        self._num_ended = {JobState.SUCCEEDED: 0, JobState.FAILED: 0}

    def report(self) -> dict[str, Any]:
        """Returns the current state as plain values; the store's part may be a few seconds old."""
        return {
            "num_running": len(self._runs),
            "max_running": self._config.max_running,
            "num_bytes": self._num_bytes,
            "max_bytes": self._config.max_bytes,
            "max_bytes_per_tenant": self._config.max_bytes_per_tenant,
            "is_store_down": self._is_down,
        }

    def measure(self, readings: Readings) -> None:
        """Adds what metrics show of it; the store's part may be a few seconds old."""
        readings.add(catalogue.JOBS_RUNNING, len(self._runs))
        if self._num_queued is not None:
            readings.add(catalogue.JOBS_QUEUED, self._num_queued)
        if self._num_bytes is not None:
            readings.add(catalogue.JOBS_STORED, self._num_bytes)
        for state, number in self._num_ended.items():
            readings.add(catalogue.JOBS_ENDED, number, state)
        readings.add(catalogue.JOBS_RETRIED, self._num_retried)
        readings.add(catalogue.JOB_STORE_DOWN, int(self._is_down))

    async def __aenter__(self) -> Self:
        self._claiming = asyncio.create_task(self._claim_forever())
        self._keeping = [asyncio.create_task(self._every(self._config.lease_s / 3, self._renew))]
        self._keeping.append(asyncio.create_task(self._every(_EXPIRE_PERIOD_S, self._expire)))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Drains, unless it has, and ends what the store does not accept."""
        if not self._is_stopping.is_set():
            await self.drain(self._service.config.drain_timeout_s)
        self._is_over.set()
        for task in self._tasks:  # what the store does not accept now runs again at its next claim
            task.cancel()
        await asyncio.gather(*self._keeping, *self._tasks, return_exceptions=True)

    async def drain(self, timeout_s: float) -> None:
        """Claims no more jobs, and gives jobs back at once. Jobs that must not be repeated may take `timeout_s`; then those are
        given back, too, whose effects have not begun. A store that does not accept how jobs ended is tried `_WRITE_S` longer."""
        self._is_stopping.set()
        await asyncio.wait((self._claiming,))
        for run in self._runs.values():
            if self.attempts.is_repeatable(run.claim):
                run.drop()
        await self._settle(timeout_s)
        for run in self._runs.values():
            run.drop()
        await self._settle(_WRITE_S)

    async def _settle(self, timeout_s: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    def wake(self) -> None:
        """Wakes the claiming task: a job was submitted here, and its lane may have a free slot."""
        self._has_room.set()

    def drop(self, job_id: str) -> None:
        """Stops a job that was ended elsewhere."""
        if run := self._runs.get(job_id):
            run.drop()

    # Claiming

    async def _claim_forever(self) -> None:
        while not self._is_stopping.is_set():
            try:
                await self._claim()
                self._down.end()
                self._is_down = False
            except StoreError as error:
                self._down.report(error=error.detail)
                self._is_down = True
                await self._unless_stopping(asyncio.sleep(_RETRY_S))

    async def _claim(self) -> None:
        """Claims as many jobs as there is room for, then waits until there may be more."""
        self._has_room.clear()
        if len(self._runs) >= self._config.max_running:
            await self._unless_stopping(self._has_room.wait())
            return
        models = [name for name, model in self._catalog.models.items() if not model.is_streaming]
        lanes = await self._store.lanes(models, self._config.lease_s)
        picked = self._slots.pick(lanes)
        claims = await self._store.claim(picked, self._owner, self._config.lease_s) if picked else []
        refused = [refusal for claim in claims if (refusal := self._admit(claim))]
        for claim, delay_s in refused:
            await self._store.release(claim, delay_s, is_counted=False)
        if refused:
            await self._unless_stopping(asyncio.sleep(_RETRY_S))
        elif not lanes:
            await self._unless_stopping(self._store.wait_for_work(_POLL_S))
        elif not claims:
            await self._unless_stopping(_is_set(self._has_room, _BLOCKED_POLL_S))

    def _admit(self, claim: Claim) -> tuple[Claim, float] | None:
        """Starts a job that does not run here, or returns how long it has to wait because too much is in flight."""
        if (running := self._runs.get(claim.job.id)) is not None and not running.is_dropped:
            running.claim = claim
            return None
        try:
            ticket = self._service.admission.admit(tenant_of(claim.job), len(claim.body.data))
        except CapacityError as error:
            return claim, error.retry_after_s or _RETRY_S
        job = claim.job
        run = self._runs[job.id] = _Run(claim, self._slots.take(job.tenant, job.model_name, tenant_of(job).weight))
        task = asyncio.create_task(self._run(run, ticket))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return None

    async def _unless_stopping(self, waiting: Coroutine[Any, Any, Any]) -> None:
        """Awaits something, and abandons it when the runner stops."""
        tasks = (asyncio.ensure_future(waiting), asyncio.create_task(self._is_stopping.wait()))
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        (error, _) = await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(error, Exception):
            raise error

    # Running

    async def _run(self, run: _Run, ticket: Ticket) -> None:
        since_s = time.monotonic()
        with ticket:
            ending = await run.attempt(self.attempts, ticket)
        claim = run.claim
        try:
            if ending is not None:
                await self._end(claim, ending, is_counted=not isinstance(ending, RetryLater) or ending.is_counted)
            elif not run.has_effect or self.attempts.is_repeatable(claim):
                await self._end(claim, RetryLater(0.0), is_counted=False)
            else:
                lost = self.attempts.effect_lost(claim, claim.job.num_attempts, has_stopped=True)
                await self._end(claim, lost, is_counted=True)
        finally:
            if self._runs.get(claim.job.id) is run:
                del self._runs[claim.job.id]
            run.slot.give_back(time.monotonic() - since_s)
            self._has_room.set()

    async def _end(self, claim: Claim, ending: Ending, *, is_counted: bool) -> None:
        """Stores how an attempt ended, as soon as the store accepts it. The store refuses it if the claim is lost."""
        while not self._is_over.is_set():
            try:
                if isinstance(ending, RetryLater):
                    await self._store.release(claim, ending.delay_s, is_counted=is_counted)
                    self._num_retried += 1
                elif await self._store.finish(claim, ending, self.quota):
                    self._num_ended[ending.state] += 1
                    self._on_end(claim.job.id)
                self._unwritten.end()
                return
            except StoreError as error:
                self._unwritten.report(job=claim.job.id, error=error.detail)
                await asyncio.sleep(_RETRY_S)
            except (CapacityError, PayloadTooLargeError) as error:  # there is no room for the result
                ending = Outcome(num_attempts=claim.job.num_attempts, error=job_error(error))

    # Keeping

    async def _every(self, period_s: float, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Repeats a step until the end. It ends by a flag instead of cancellation, which redis-py may lose."""
        while not await _is_set(self._is_over, period_s):
            try:
                await step()
            except StoreError:
                continue  # the claiming task reports it

    async def _renew(self) -> None:
        claims = [run.claim for run in self._runs.values()]
        lost = await self._store.renew(claims, self._config.lease_s) if claims else set[str]()
        self._drop_all(claim for claim in claims if claim.job.id in lost)

    def _drop_all(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            run = self._runs.get(claim.job.id)
            if run is not None and run.claim is claim and run.drop():
                _log.warning("job_lost", job=claim.job.id)

    async def _expire(self) -> None:
        while await self._store.expire(_MAX_EXPIRED) == _MAX_EXPIRED:
            pass
        self._num_bytes = await self._store.num_bytes()
        self._num_queued = await self._store.num_queued()


async def _is_set(event: asyncio.Event, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            return await event.wait()
    except TimeoutError:
        return False
