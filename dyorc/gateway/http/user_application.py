"""The user's own ASGI application, beside DyOrc's routes: loaded, started and stopped, and given its requests.

For the event loop's thread.
"""

import asyncio
import contextlib
import inspect
from types import TracebackType
from typing import Any, Self, cast

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dyorc.authoring.current_request import handled_request
from dyorc.authoring.loading import import_place
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.errors import AuthenticationError, ConfigurationError, DefinitionError, DyOrcError, RequestCancelledError
from dyorc.gateway.codec.http_errors import error_body, retry_headers, status_of
from dyorc.gateway.http.authentication import CHALLENGE
from dyorc.gateway.http.handler_calls import HandlerRequest, current_handler
from dyorc.gateway.http.inference_answers import write_error
from dyorc.gateway.http.middleware import EXCHANGE, OUTER
from dyorc.gateway.request_ids import Ids, answer_headers
from dyorc.gateway.service import InferenceService
from dyorc.protocol import media_types
from dyorc.protocol.header_names import Header

_log = structlog.get_logger("dyorc.gateway")


def load_application(target: str) -> "UserApplication":
    """Imports an application, such as ``app.py:api``.

    Raises:
        DefinitionError: If there is no such file, module or name, or it cannot be called.
        ModuleImportError: If the module raises.
    """
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise DefinitionError(f"{target!r} names no application; expected PATH:NAME, like app.py:api")
    module = import_place(place)
    if not hasattr(module, name):
        raise DefinitionError(f"{place} has no {name!r}; expected the name of an ASGI application, such as FastAPI()")
    app: object = getattr(module, name)
    return UserApplication(as_application(app, target), target)


def as_application(app: object, name: str) -> ASGIApp:
    """Returns what is an ASGI application.

    Raises:
        DefinitionError: If it cannot be called with a scope and two functions, as one that makes an application.
    """
    if isinstance(app, Workflow | Program) or not callable(app):
        raise DefinitionError(f"{name} is {app!r}, expected an ASGI application, such as FastAPI()")
    try:
        parameters = inspect.signature(app)
    except (TypeError, ValueError):  # it does not say
        return cast("ASGIApp", app)
    try:
        parameters.bind(None, None, None)
    except TypeError:
        raise DefinitionError(
            f"{name} is called as {parameters}, expected an ASGI application, such as FastAPI(), which is called with a scope, "
            f"receive and send; call a function or class that makes one, and name what it returns"
        ) from None
    return cast("ASGIApp", app)


class UserApplication:
    """An ASGI application, whose lifespan is as long as this is entered.

    Args:
        app: The application.
        name: For errors and logs.
        stop_timeout_s: How long its shutdown may take.
    """

    def __init__(self, app: ASGIApp, name: str, stop_timeout_s: float = 10.0) -> None:
        self.name = name
        self._app = app
        self._stop_timeout_s = stop_timeout_s
        self._state: dict[str, Any] = {}
        self._has_lifespan = False
        self._orders: asyncio.Queue[Message] = asyncio.Queue()
        self._reports: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._failure = ""

    @property
    def routes(self) -> list[BaseRoute]:
        """Its routes, as far as it says them."""
        return self._app.routes if isinstance(self._app, Starlette) else []

    async def __aenter__(self) -> Self:
        """Starts it.

        Raises:
            ConfigurationError: If it says that its startup has failed.
        """
        if isinstance(self._app, Starlette):  # FastAPI, too
            self._app.exception_handlers.setdefault(DyOrcError, _answer_error)
            self._app.exception_handlers.setdefault(ExceptionGroup, _answer_group)
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self._state}
        self._task = asyncio.create_task(self._run(scope))
        report = await self._ask("lifespan.startup")
        self._has_lifespan = report is not None
        if report is not None and report["type"] == "lifespan.startup.failed":
            await asyncio.wait([self._task])
            text = _last_line(report.get("message")) or self._failure
            raise ConfigurationError(f"application {self.name}: its startup failed{text and f': {text}'}")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        task = self._task
        assert task is not None
        if self._has_lifespan and not task.done():
            try:
                async with asyncio.timeout(self._stop_timeout_s):
                    report = await self._ask("lifespan.shutdown")
                if report is None or report["type"] == "lifespan.shutdown.failed":
                    reason = _last_line((report or {}).get("message")) or self._failure
                    _log.error("application_shutdown_failed", application=self.name, error=reason)
            except TimeoutError:
                _log.warning("application_shutdown_cut_off", application=self.name, after_s=self._stop_timeout_s)
        task.cancel()
        await asyncio.wait([task])

    async def handle(self, service: InferenceService, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets it answer a request. An error of ours that it does not handle becomes the answer.

        Args:
            service: Runs what its handler calls.
            scope: With the request's exchange.
        """
        exchange = scope[EXCHANGE]
        exchange.is_foreign = True
        handler = HandlerRequest(service, scope)
        token, of_request = current_handler.set(handler), handled_request.set(handler)

        head: Message | None = None

        async def send_in_order(message: Message) -> None:
            """Sends the head with the first part of the body: an error before that may still have an answer of its own."""
            nonlocal head
            is_start = message["type"] == "http.response.start"
            if is_start is (exchange.has_started or head is not None):
                raise RuntimeError(f"application {self.name} sent {message['type']} {'twice' if is_start else 'first'}")
            if is_start:
                head = message
                return
            if head is not None:
                start, head = head, None
                await send(start)
            await send(message)

        try:
            await self._app(self._with_state(scope.get(OUTER, scope)), receive, send_in_order)
            if not exchange.has_started and not exchange.is_lost:  # nothing is written for a client that is gone
                raise RuntimeError(f"application {self.name} returned without an answer")
        except Exception as error:
            ours = _error_behind(error)
            if exchange.is_lost and isinstance(ours, RequestCancelledError):
                return
            if ours is None or exchange.has_started:
                raise
            await write_error(send, ours, exchange.ids, _more_headers(ours, exchange.ids))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise RuntimeError(f"application {self.name} raised CancelledError, and nobody had cancelled it") from error
        except (SystemExit, KeyboardInterrupt) as error:  # of a library, perhaps: no client may end the server
            raise RuntimeError(f"application {self.name} raised {type(error).__name__}") from error
        finally:
            current_handler.reset(token)
            handled_request.reset(of_request)

    async def connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets it answer a WebSocket, whose handler cannot call models."""
        await self._app(self._with_state(scope), receive, send)

    # Inside

    def _with_state(self, scope: Scope) -> Scope:
        """Returns a scope of its own for the application, with what its lifespan has put into the state."""
        return {**scope, "state": {**scope.get("state", {}), **self._state}} if self._has_lifespan else dict(scope)

    async def _run(self, scope: Scope) -> None:
        try:
            await self._app(scope, self._orders.get, self._reports.put)
        except Exception as error:  # by the standard: it has no lifespan, unless it has said otherwise
            self._failure = f"{type(error).__name__}: {error}"
            _log.debug("application_without_lifespan", application=self.name, error=self._failure)

    async def _ask(self, order: str) -> Message | None:
        """Returns what the application answers; None if its lifespan ends instead."""
        assert self._task is not None
        self._orders.put_nowait({"type": order})
        answer = asyncio.ensure_future(self._reports.get())
        try:
            await asyncio.wait([answer, self._task], return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            return None if self._reports.empty() else self._reports.get_nowait()
        finally:
            answer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await answer


def _last_line(text: object) -> str:
    """Returns the last line of a report, which is often a traceback."""
    return str(text or "").strip().rpartition("\n")[2]


def _error_behind(error: BaseException | None) -> DyOrcError | None:
    """Returns an error of ours behind one: Starlette raises another if an answer fails that it believes to have begun, and a task
    group one around those of its tasks. In a group with errors of others, something else has failed."""
    seen = set[int]()
    while error is not None and id(error) not in seen:  # an error may be its own cause
        if isinstance(error, DyOrcError):
            return error
        if isinstance(error, BaseExceptionGroup):
            members = [_error_behind(member) for member in error.exceptions]
            return None if None in members else members[0]
        seen.add(id(error))
        error = error.__cause__
    return None


def _more_headers(error: DyOrcError, ids: Ids) -> list[Header]:
    """Returns what our own routes add to an answer with an error, and the application's answers do not have."""
    challenge = [CHALLENGE] if isinstance(error, AuthenticationError) else []
    return [*challenge, *answer_headers(ids, status_of(error))]


async def _answer_error(request: Request, error: Exception) -> Response:
    """Answers for a FastAPI or Starlette application, whose own middleware would make a bare 500 of it."""
    assert isinstance(error, DyOrcError)
    handler = current_handler.get()
    assert handler is not None
    headers = {name.decode(): value.decode() for name, value in (*retry_headers(error), *_more_headers(error, handler.ids))}
    return Response(error_body(error, handler.ids), status_of(error), headers, media_types.JSON)


async def _answer_group(request: Request, error: Exception) -> Response:
    """Answers with the error of ours that an `asyncio.TaskGroup` has wrapped; raises any other group again."""
    ours = _error_behind(error)
    if ours is None:
        raise error
    return await _answer_error(request, ours)
