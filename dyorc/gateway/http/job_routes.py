"""The routes of durable jobs, ``/v1/jobs``. Errors are answered as on all routes."""

import math
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from dyorc.errors import DyOrcError, InvalidInputError, JobNotEndedError, RequestCancelledError
from dyorc.gateway.http.heads import read_head
from dyorc.gateway.http.middleware import arrival_of, ids_of, prefix_of, tenant_of
from dyorc.gateway.http.request_bodies import BodyReader
from dyorc.gateway.jobs.job_json import error_json, job_json
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.request_ids import caller_in_headers
from dyorc.gateway.service import InferenceService
from dyorc.gateway.tenants import Tenant
from dyorc.protocol import media_types
from dyorc.protocol.api_paths import JOBS
from dyorc.protocol.header_names import IDEMPOTENCY_KEY, JSON_LENGTH
from dyorc.protocol.job_records import JobState
from dyorc.store.base import MAX_LISTED, Body, StoredJob

_JOB = f"{JOBS}/{{job_id}}"
_MAX_WAIT_S = 60.0
_DEFAULT_LISTED = 100
_MAX_KEY_CHARS = 255
_MAX_LIMIT_DIGITS = 18
"""Python refuses to read numbers of thousands of digits."""


def add_job_routes(app: FastAPI, jobs: Jobs) -> None:
    """Adds them to an application that answers errors of the tree in `dyorc.errors`."""

    @app.post(JOBS, status_code=202, openapi_extra=_SUBMIT, responses={200: {"description": "It was submitted before."}})
    async def submit_job(request: Request) -> Response:
        """Accepts an inference request, to be run when there is room."""
        try:
            return await submitted(request)
        except DyOrcError as error:
            arrival = arrival_of(request.scope, "job")
            jobs.service.origins.record_refusal(arrival, error, str, tenant_of(request.scope).name)
            raise

    async def submitted(request: Request) -> Response:
        tenant = tenant_of(request.scope)
        key = request.headers.get(IDEMPOTENCY_KEY)
        if key is not None and not 1 <= len(key) <= _MAX_KEY_CHARS:
            raise InvalidInputError(f"Idempotency-Key has {len(key)} characters, expected 1 to {_MAX_KEY_CHARS}")
        body = await _read_body(request, tenant, jobs.service)
        caller = caller_in_headers(request.scope["headers"])
        job, is_new = await jobs.submit(tenant, body, key or "", caller, request.scope["headers"])
        return JSONResponse(job_json(job), 202 if is_new else 200, {"location": f"{prefix_of(request.scope)}{JOBS}/{job.id}"})

    @app.get(JOBS)
    async def list_jobs(
        request: Request, state: str | None = None, limit: str | None = None, after: str | None = None
    ) -> dict[str, Any]:
        """Returns the tenant's jobs, the newest first. `next` is where the next page goes on, if there is one."""
        num = _DEFAULT_LISTED if limit is None else _limit(limit)
        page = await jobs.page(tenant_of(request.scope), _state(state), num, _id(after) if after else "")
        return {"jobs": [job_json(job) for job in page], "next": page[-1].id if len(page) == num else None}

    @app.get(_JOB)
    async def get_job(request: Request, job_id: str, wait_s: str | None = None) -> dict[str, Any]:
        """Returns a job; with `wait_s`, at most 60, as soon as it has ended."""
        wait = 0.0 if wait_s is None else _seconds(wait_s)
        return job_json(await jobs.get(tenant_of(request.scope), _id(job_id), wait))

    @app.get(f"{_JOB}/result")
    async def get_result(request: Request, job_id: str) -> Response:
        """Returns what the inference route would have answered."""
        job, body = await jobs.result(tenant_of(request.scope), _id(job_id))
        if job.error is not None:
            ids_of(request.scope).name(job.id)  # the error belongs to another request
        return _result(job, body)

    @app.post(f"{_JOB}/cancel")
    async def cancel_job(request: Request, job_id: str) -> dict[str, Any]:
        """Ends a job, if it has not ended yet."""
        return job_json(await jobs.cancel(tenant_of(request.scope), _id(job_id)))

    @app.delete(_JOB, status_code=204)
    async def delete_job(request: Request, job_id: str) -> Response:
        """Ends and forgets a job."""
        await jobs.delete(tenant_of(request.scope), _id(job_id))
        return Response(status_code=204)


_SUBMIT: dict[str, Any] = {
    "parameters": [
        {
            "name": IDEMPOTENCY_KEY.title(),
            "in": "header",
            "schema": {"type": "string", "minLength": 1, "maxLength": _MAX_KEY_CHARS},
        },
        {"name": JSON_LENGTH.title(), "in": "header", "schema": {"type": "integer", "minimum": 0}},
    ],
    "requestBody": {
        "required": True,
        "content": {
            media_types.JSON: {
                "schema": {
                    "type": "object",
                    "required": ["model_name", "inputs"],
                    "properties": {
                        "model_name": {"type": "string"},
                        "model_version": {"type": "string"},
                        "webhook": {"type": "string"},
                        "ttl_s": {"type": "number"},
                        "inputs": {"type": "array", "items": {"type": "object"}},
                    },
                }
            },
            media_types.TENSORS: {"schema": {"type": "string", "format": "binary"}},
        },
    },
}


async def _read_body(request: Request, tenant: Tenant, service: InferenceService) -> Body:
    """Reads a job's body into memory, from which it goes to the store. It counts as in flight meanwhile.

    Raises:
        PayloadTooLargeError: If it is larger than the server takes.
        InvalidInputError: If its headers are malformed.
        CapacityError: If there is no room for it now.
        RequestCancelledError: If the client goes away.
    """
    head = read_head(request.scope["headers"], is_old=request.scope["http_version"] == "1.0")
    if head.encoding is not None:
        raise InvalidInputError(f"Content-Encoding {request.headers['content-encoding']!r} is not supported, expected none")
    reader = BodyReader(service.config.max_request_bytes)
    with service.admission.admit(tenant, reader.expected_bytes(head)) as ticket:
        data = await reader.read_all(head, request.receive, ticket)
    return Body(data, head.json_bytes)


def _id(text: str) -> str:
    """Returns an id as valid text for the store."""
    return text.encode(errors="replace").decode()


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_LIMIT_DIGITS and 1 <= int(text) <= MAX_LISTED):
        raise InvalidInputError(f"limit is {text[:40]!r}, expected a whole number from 1 to {MAX_LISTED}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= _MAX_WAIT_S:
        raise InvalidInputError(f"wait_s is {text[:40]!r}, expected seconds, from 0 to {_MAX_WAIT_S:g}")
    return value


def _state(text: str | None) -> JobState | None:
    if text is None:
        return None
    try:
        return JobState(text)
    except ValueError:
        raise InvalidInputError(f"state is {text[:40]!r}, expected one of {[state.value for state in JobState]}") from None


def _result(job: StoredJob, body: Body | None) -> Response:
    if body is not None:
        if body.json_bytes is None:
            return Response(body.data, media_type=media_types.JSON)
        headers = {JSON_LENGTH: str(body.json_bytes)}
        return Response(body.data, headers=headers, media_type=media_types.TENSORS)
    if job.error is not None:
        return JSONResponse(error_json(job.id, job.error), job.error.status)
    if job.state is JobState.CANCELLED:
        raise RequestCancelledError(f"job {job.id} was cancelled")
    raise JobNotEndedError(f"job {job.id} is {job.state}; it has no result yet")
