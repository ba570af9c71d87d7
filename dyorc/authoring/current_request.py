"""`dyorc.request`: what code may know of the request for which it runs, in workflows, programs and handlers of applications."""

from contextvars import ContextVar
from typing import Protocol, TypeAlias

from dyorc.authoring.context import current_recorder
from dyorc.core.request import RequestInfo


class RequestHolder(Protocol):
    """Knows the request for which code runs."""

    def request_info(self) -> RequestInfo: ...


RowRequests: TypeAlias = RequestInfo | tuple[RequestInfo, ...]
"""Of the call of an unbatched program, or of each row of a batch; empty if the program has not asked for it."""

row_requests: ContextVar[RowRequests | None] = ContextVar("dyorc_rows", default=None)
"""Set around a program's code."""
handled_request: ContextVar[RequestHolder | None] = ContextVar("dyorc_handled", default=None)
"""Set around an application's handler."""


def request() -> RequestInfo:
    """Returns the request for which the calling code runs: its id, tenant, deadline, priority, trace and chosen headers.

    In workflows; in programs that are declared with ``sees_requests=True`` and ``batched=False``; and in handlers of an
    application beside DyOrc's routes. Under `dyorc.run`, it has a generated id and nothing else.

    Raises:
        RuntimeError: If the code runs for no request, for several, or in a program that is not declared so.
    """
    if (recorder := current_recorder.get()) is not None:
        return recorder.request_info()
    match row_requests.get():
        case RequestInfo() as info:
            return info
        case ():
            raise RuntimeError("a program called dyorc.request; declare it: @dyorc.program(sees_requests=True)")
        case tuple():
            raise RuntimeError("a batched program runs for several requests; dyorc.requests() returns them, one for each row")
        case None:
            pass
    if (holder := handled_request.get()) is not None:
        return holder.request_info()
    raise RuntimeError("dyorc.request was called for no request; it works in workflows, programs and handlers of applications")


def requests() -> tuple[RequestInfo, ...]:
    """Returns the requests for which a batched program runs, one for each row, in their order.

    In programs that are declared with ``sees_requests=True``; in one with ``batched=False`` it returns its only request. Several
    rows may be of one request, if its workflow makes several calls.

    Raises:
        RuntimeError: If the code is not a program's, or the program is not declared so.
    """
    match row_requests.get():
        case RequestInfo() as info:
            return (info,)
        case ():
            raise RuntimeError("a program called dyorc.requests; declare it: @dyorc.program(sees_requests=True)")
        case tuple() as rows:
            return rows
        case None:
            raise RuntimeError("dyorc.requests was called outside a program; in a workflow, dyorc.request() returns the request")
