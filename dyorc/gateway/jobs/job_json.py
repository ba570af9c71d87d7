"""Jobs as JSON for clients, and the part of their tenants that is stored with them."""

from typing import Any

import msgspec
import orjson

from dyorc.core.trace_context import TraceContext
from dyorc.errors import DyOrcError, InternalError, InvalidInputError
from dyorc.gateway.codec.http_errors import status_of
from dyorc.gateway.tenants import Tenant
from dyorc.protocol.wire_errors import ErrorBody, reason_of_json
from dyorc.store.base import Body, JobError, StoredJob


class _Terms(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a tenant that matters when its jobs run, and the jobs' trace. The tenant's rate was checked at submission."""

    weight: float = 1.0
    max_requests: int | None = None
    max_bytes: int | None = None
    trace: TraceContext | None = None


def job_json(job: StoredJob) -> dict[str, Any]:
    """Returns a job as every route and webhook sends it."""
    error = job.error
    return {
        "id": job.id,
        "model_name": job.model_name,
        "model_version": job.model_version,
        "state": job.state,
        "created_s": job.created_s,
        "started_s": job.started_s,
        "finished_s": job.finished_s,
        "expires_s": job.expires_s,
        "num_attempts": job.num_attempts,
        "error": None if error is None else error_json(job.id, error),
    }


def job_bytes(job: StoredJob) -> bytes:
    """Returns the same as JSON."""
    return orjson.dumps(job_json(job))


def error_json(job_id: str, error: JobError) -> dict[str, Any]:
    """Returns a job's error, in the form of all errors. Its request id is the job's id."""
    return msgspec.to_builtins(ErrorBody(error.text, error.code, error.retryable, job_id))


def job_error(error: Exception) -> JobError:
    """Returns what is stored of an error; a foreign one becomes a plain internal error."""
    if not isinstance(error, DyOrcError):
        error = InternalError("internal error")
    return JobError(str(error).encode(errors="replace").decode(), error.code, error.retryable, status_of(error))


def terms_of(tenant: Tenant, trace: TraceContext | None) -> str:
    """Returns what to store of a tenant, and of the span that is the parent of a job's attempts."""
    return msgspec.json.encode(_Terms(tenant.weight, tenant.max_requests, tenant.max_bytes, trace)).decode()


def tenant_of(job: StoredJob) -> Tenant:
    """Returns the tenant of a job, as of its submission."""
    terms = _terms(job)
    return Tenant(name=job.tenant, weight=terms.weight, max_requests=terms.max_requests, max_bytes=terms.max_bytes)


def trace_of(job: StoredJob) -> TraceContext | None:
    """Returns the span that is the parent of the job's attempts; None if it was submitted without a trace."""
    return _terms(job).trace


def _terms(job: StoredJob) -> _Terms:
    return msgspec.json.decode(job.terms or "{}", type=_Terms)


_UNREAD = msgspec.Raw()


class JobHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a job's JSON besides its request, whose fields are checked later."""

    model_name: str
    model_version: str | None = None
    webhook: str | None = None
    ttl_s: float | None = None
    id: msgspec.Raw = _UNREAD
    parameters: msgspec.Raw = _UNREAD
    inputs: msgspec.Raw = _UNREAD
    outputs: msgspec.Raw = _UNREAD


_head_decoder = msgspec.json.Decoder(JobHead)


def read_head(body: Body) -> JobHead:
    """Reads the fields of a job's JSON that are not its request.

    Raises:
        InvalidInputError: If it is no job.
    """
    try:
        return _head_decoder.decode(memoryview(body.data)[: body.json_bytes])
    except RecursionError as error:
        raise InvalidInputError("the job's JSON is nested too deeply") from error
    except msgspec.ValidationError as error:
        fields = JobHead.__struct_fields__
        raise InvalidInputError(f"the job's JSON is not a job: {error}; the fields of a job are {list(fields)}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"the job's {reason_of_json(error)}") from error
