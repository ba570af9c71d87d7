"""Routes about requests that have ended: which were slow or failed, and where their time went. Not part of the protocol."""

import asyncio
from collections.abc import Awaitable
from typing import Annotated

import msgspec
from fastapi import FastAPI, Query, Request, Response

from dyorc.gateway.http.disconnects import CancelledWithClient
from dyorc.gateway.http.middleware import tenant_of
from dyorc.gateway.request_records import Records, beyond_ns_of
from dyorc.protocol import media_types
from dyorc.protocol.api_paths import REQUESTS, TAIL, TRACE
from dyorc.telemetry.record_store import Order, Outcome
from dyorc.telemetry.record_store import Query as RecordQuery

_MAX_LISTED = 500
_MAX_TRACE_S = 600.0
_MAX_TAIL_S = 366 * 86400.0

_Workflow = Annotated[str | None, Query(description="Only requests of this model")]
_Order = Annotated[Order, Query(description="`latest`, or `slowest`, from first byte to last")]
_Outcome = Annotated[Outcome, Query(description="`all`, `ok` or `failed`")]
_Limit = Annotated[int, Query(ge=1, le=_MAX_LISTED, description="How many at most")]
_Beyond = Annotated[
    float | None,
    Query(
        description="Goes on where another list ended: `ended_s` of its last request, or `duration_ms` if the slowest come first"
    ),
]
_Seconds = Annotated[float, Query(gt=0, le=_MAX_TRACE_S, description="How far back")]
_Since = Annotated[
    float | None, Query(gt=0, le=_MAX_TAIL_S, description="How far back, in seconds; by default as far as is remembered")
]
_Share = Annotated[float, Query(gt=0, le=0.5, description="How many of the requests count as the slowest, as a fraction")]


def add_record_routes(app: FastAPI, records: Records) -> None:
    """Adds ``/requests``, ``/requests/{request_id}``, ``/tail`` and ``/trace``."""

    @app.get(REQUESTS, tags=["requests"])
    async def requests(
        request: Request,
        workflow: _Workflow = None,
        order: _Order = "latest",
        outcome: _Outcome = "all",
        limit: _Limit = 50,
        beyond: _Beyond = None,
    ) -> Response:
        """The recorded requests: the latest, and for longer the slow and failed ones. `cause` names what took most of a request's
        time. With `beyond`, requests with just this value come again."""
        beyond_ns = None if beyond is None else beyond_ns_of(order, beyond)
        query = RecordQuery(workflow=workflow, order=order, outcome=outcome, limit=limit, beyond_ns=beyond_ns)
        return await _answer(request, records.page(query, tenant_of(request.scope)))

    # The operation's id names a method in generated clients.
    @app.get(f"{REQUESTS}/{{request_id:path}}", tags=["requests"], operation_id="one_requests__request_id__get")
    async def record(request: Request, request_id: str) -> Response:
        """Everything about a request that has ended: where its time went (`stages`, `diagnosis`), its calls, the
        batches they shared with other requests, decisions and guesses. Times are in milliseconds since its first byte."""
        return await _answer(request, records.get(request_id, tenant_of(request.scope)))

    @app.get(TAIL, tags=["requests"])
    async def tail(request: Request, workflow: _Workflow = None, share: _Share = 0.01, seconds: _Since = None) -> Response:
        """Where the time of the slowest requests went, beside typical ones: the middle half. `stages` has the means of both, the
        largest excess first, and `num_caused`: how many of the slowest owe most of their excess to it; and `program`, whose calls
        have most of it."""
        return await _answer(request, records.tail(workflow, share, seconds, tenant_of(request.scope)))

    @app.get(TRACE, tags=["requests"])
    async def trace(request: Request, seconds: _Seconds = 5.0) -> Response:
        """The requests that ended in the last seconds, and the batches that they were in, as trace events in Chrome's format,
        which Perfetto shows."""
        return await _answer(request, records.trace(seconds, tenant_of(request.scope)))


async def _answer(request: Request, answer: Awaitable[object]) -> Response:
    """Answers, unless the client goes away before: then the work ends at the next record."""
    with CancelledWithClient(request.scope, asyncio.current_task()):
        value = await answer
    return Response(msgspec.json.encode(value), media_type=media_types.JSON, headers={"Cache-Control": "no-store"})
