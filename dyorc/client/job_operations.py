"""All operations on durable jobs, without I/O."""

import math
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from dyorc.client.effects import Flow, Sleep
from dyorc.client.operations import Operations, answer_of, read_json
from dyorc.errors import DeadlineError, InvalidInputError, UnknownJobError
from dyorc.protocol.api_paths import JOBS
from dyorc.protocol.header_names import IDEMPOTENCY_KEY
from dyorc.protocol.inference_answer import Answer
from dyorc.protocol.inference_request import Options, PreparedRequest, infer_request
from dyorc.protocol.job_records import JobPage, JobRecord, JobState
from dyorc.protocol.parameter_names import TIMEOUT

_MAX_WAIT_S = 30.0
"""How long to wait for one answer; proxies may close connections that are silent for longer."""

_GRACE_S = 1.0
"""Extra time for the answer to a wait that the server ends by itself."""

_MAX_PAUSE_S = 1.0
_PAGE = 100

_record_decoder = msgspec.json.Decoder(JobRecord)
_page_decoder = msgspec.json.Decoder(JobPage)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """A caller's options for a job.

    Attributes:
        idempotency_key: Submitting twice under one key creates one job; None: a new key, so that only the client's own retries
            count as the same job.
        webhook: URL to notify when the job ends.
        ttl_s: How long the server keeps it, in seconds; None: the server's default.
        run_timeout_s: How long it may run, in seconds; None: no limit by the caller.
    """

    idempotency_key: str | None = None
    webhook: str | None = None
    ttl_s: float | None = None
    run_timeout_s: float | None = None


class JobOperations:
    """Operations on jobs, on top of those on models."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def submit(self, model: str, inputs: Mapping[str, Any], options: Options, job: JobOptions) -> Flow[JobRecord]:
        """Submits a request. Repeating the submission is harmless, because it carries the job's key."""
        operations = self._operations
        deadline_s = operations.deadline_s(options.timeout_s)
        key = secrets.token_hex(16) if job.idempotency_key is None else job.idempotency_key
        is_text = isinstance(key, str)  # pyright: ignore[reportUnnecessaryIsInstance] -- numbers of orders are often given
        if not is_text or not key.isascii() or not key.isprintable() or not key.strip():
            raise InvalidInputError(f"idempotency_key is {key!r}, expected a text of printable ASCII")
        fields: dict[str, Any] = {
            "model_name": model,
            "model_version": options.version,
            "webhook": job.webhook,
            "ttl_s": job.ttl_s,
        }
        if job.run_timeout_s is not None:
            inputs = {**inputs, TIMEOUT: round(job.run_timeout_s * 1e6)}
        metadata = yield from operations.metadata_by(model, options.version, deadline_s)
        request = infer_request(
            JOBS, metadata, inputs, options, **{name: value for name, value in fields.items() if value is not None}
        ).with_header(IDEMPOTENCY_KEY, key)
        return read_json((yield from operations.send(request, deadline_s)), _record_decoder)

    def get(self, job_id: str) -> Flow[JobRecord]:
        """Returns a job's current state."""
        return (yield from self._operations.get(_path(job_id), _record_decoder))

    def wait(self, job_id: str, timeout_s: float | None) -> Flow[JobRecord]:
        """Returns a job once it has ended.

        Args:
            timeout_s: None for no limit.

        Raises:
            DeadlineError: If it has not ended by then. The job goes on.
        """
        operations = self._operations
        clock_s = operations.delivery.clock_s
        deadline_s = clock_s() + (math.inf if timeout_s is None else timeout_s)
        pause_s = 0.0
        while True:
            asked_s = clock_s()
            wait_s = min(_MAX_WAIT_S, max(0.0, deadline_s - asked_s))
            limit_s = min(deadline_s + _GRACE_S, asked_s + wait_s + operations.deadline_s(None) - clock_s())
            record = yield from operations.get(f"{_path(job_id)}?wait_s={wait_s:.3f}", _record_decoder, limit_s)
            if record.state.is_final:
                return record
            now_s = clock_s()
            if now_s >= deadline_s:
                raise DeadlineError(f"job {job_id!r} is {record.state} after {timeout_s} s; it goes on")
            # Without a pause, a server that waits for less would be asked again at once.
            pause_s = 0.0 if now_s - asked_s > wait_s / 2 else min(_MAX_PAUSE_S, max(0.05, pause_s * 2))
            if pause_s:
                yield Sleep(min(pause_s, deadline_s - now_s))

    def result(self, job_id: str, timeout_s: float | None) -> Flow[Answer]:
        """Returns a job's result, once it has ended.

        Raises:
            DyOrcError: The error with which it failed; `RequestCancelledError` if it was cancelled; see `wait`.
        """
        failure = (yield from self.wait(job_id, timeout_s)).failure()
        if failure is not None:
            raise failure
        request = PreparedRequest("GET", _path(job_id, "/result"))
        return answer_of((yield from self._operations.send(request)))

    def cancel(self, job_id: str) -> Flow[JobRecord]:
        """Cancels a job; one that has ended stays as it is."""
        return read_json((yield from self._operations.send(PreparedRequest("POST", _path(job_id, "/cancel")))), _record_decoder)

    def delete(self, job_id: str) -> Flow[None]:
        """Cancels a job if it has not ended, and deletes it, unless it is deleted already."""
        with suppress(UnknownJobError):
            yield from self._operations.send(PreparedRequest("DELETE", _path(job_id)))

    def jobs(self, state: JobState | None, max_jobs: int) -> Flow[list[JobRecord]]:
        """Returns jobs, in the server's order."""
        operations = self._operations
        deadline_s = operations.deadline_s(None)
        records: list[JobRecord] = []
        after: str | None = None
        while len(records) < max_jobs:
            query = {"state": state, "limit": min(_PAGE, max_jobs - len(records)), "after": after}
            path = f"{JOBS}?{urlencode({name: value for name, value in query.items() if value is not None})}"
            page = yield from operations.get(path, _page_decoder, deadline_s)
            records += page.jobs
            if page.next is None or page.next == after:
                break
            after = page.next
        return records[:max_jobs]


def _path(job_id: str, action: str = "") -> str:
    if not job_id:
        raise InvalidInputError("the job's id is empty")
    return f"{JOBS}/{quote(job_id, safe='')}{action}"
