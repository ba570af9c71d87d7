"""`dyorc.asgi`: DyOrc as an ASGI application, which uvicorn, hypercorn or gunicorn serves, or which is mounted in another one.

The engine and the programs run in the process of that server, as under ``dyorc serve --in-process``.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from dyorc.authoring.loading import programs_of
from dyorc.authoring.overrides import override_programs
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.config import Settings
from dyorc.errors import DefinitionError
from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.asgi_exchange import AsgiExchange
from dyorc.gateway.http.cors import Cors
from dyorc.gateway.http.heads import limit_s_of, target_of
from dyorc.gateway.http.inference_answers import write_error
from dyorc.gateway.http.user_application import UserApplication, as_application
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.origins import Arrival
from dyorc.gateway.service import InferenceService
from dyorc.models.registry import ModelRegistry
from dyorc.models.status import StatusBoard
from dyorc.server.request_pipeline import gateway_parts, request_pipeline
from dyorc.server.runtime import in_process
from dyorc.server.stop_signals import Drain
from dyorc.settings.settings_reader import read
from dyorc.store.opening import store_of
from dyorc.telemetry import logs
from dyorc.telemetry.histories.history_recorder import recording_histories
from dyorc.telemetry.tracing.tracer import tracing

_LOOK_AGAIN_S = 5.0


def asgi(*models: Workflow | Program, app: ASGIApp | None = None, settings: Mapping[str, Any] | None = None) -> "AsgiApplication":
    """Returns DyOrc as an ASGI application, with the routes that ``dyorc serve`` has: ``uvicorn app:server``.

    The programs run in the server's process. Nothing starts before the server calls it: its lifespan starts and stops
    everything. An application in which it is mounted passes no lifespan on; give that one `AsgiApplication.lifespan`, or it
    starts with its first request.

    Args:
        models: Workflows and programs to serve.
        app: Your own application beside DyOrc's routes, as with ``dyorc serve --app``: it gets ``/`` and every path that
            DyOrc has no route for, and its handlers may use `dyorc.call` and `dyorc.stream`.
        settings: Settings by their names, such as ``{"gateway.max_requests": 64}``; they go before those of the environment and
            of ``dyorc.toml``. Addresses, TLS, gRPC and limits of connections are matters of the server that runs it.

    Raises:
        DefinitionError: If there is no model, two have the same name, or one cannot be served; if `app` is no ASGI application.
        ConfigurationError: If the settings are wrong.
    """
    if not models:
        raise DefinitionError("dyorc.asgi got no model; expected workflows or programs, like dyorc.asgi(classify)")
    for model in models:
        if not isinstance(model, Workflow | Program):  # pyright: ignore[reportUnnecessaryIsInstance] -- a mistake that people make
            raise DefinitionError(
                f"dyorc.asgi got {model!r}, expected a workflow or a program (the class of a program is called first)"
            )
    ModelRegistry.of(models)
    if app is not None:
        as_application(app, "dyorc.asgi(app=...)")
    return AsgiApplication(models, app, read(None, settings).settings)


class _Embedded(NamedTuple):
    """What runs in the server's process."""

    gateway: Gateway
    service: InferenceService
    application: UserApplication | None
    status: StatusBoard


class _Run:
    """One run of it on an event loop, owned by a task of that loop: if nobody stops it, the loop does when it is closed."""

    def __init__(self, application: "AsgiApplication") -> None:
        self.loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[_Embedded] = self.loop.create_future()
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._serve(application))

    async def _serve(self, application: "AsgiApplication") -> None:
        try:
            async with application.embedded() as embedded:
                self.ready.set_result(embedded)
                await self._stop.wait()
        except Exception as error:
            if self.ready.done():
                raise
            self.ready.set_exception(error)
            self.ready.exception()  # a request that waits gets it; none has to

    @property
    def is_usable(self) -> bool:
        """Whether it belongs to the running loop, and has neither failed nor ended."""
        has_failed = self.ready.done() and self.ready.exception() is not None
        return self.loop is asyncio.get_running_loop() and not self._task.done() and not has_failed

    async def stop(self) -> None:
        self._stop.set()
        await self._task


class AsgiApplication:
    """DyOrc as an ASGI application; `dyorc.asgi` makes it."""

    def __init__(self, models: tuple[Workflow | Program, ...], app: ASGIApp | None, settings: Settings) -> None:
        self._models = models
        self._app = app
        self._settings = settings
        self._cors = Cors.of(settings.gateway)
        self._run: _Run | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "lifespan":
                await self._live(receive, send)
            case "http":
                await self._answer(scope, receive, send)
            case "websocket":
                await self._connect(scope, receive, send)
            case _:
                raise NotImplementedError(f"ASGI's {scope['type']!r} is not supported")

    @contextlib.asynccontextmanager
    async def lifespan(self, _: object = None) -> AsyncGenerator[None]:
        """Runs it while entered; once entered, all programs are loaded, or one cannot be.

        For an application in which it is mounted: ``FastAPI(lifespan=models.lifespan)``.

        Raises:
            DyOrcError: If it cannot start.
        """
        run = self._running()
        status = (await run.ready).status
        while not status.is_ready and not status.is_failing:
            await status.wait_for_change(_LOOK_AGAIN_S)
        try:
            yield
        finally:
            await run.stop()

    @contextlib.asynccontextmanager
    async def embedded(self) -> AsyncGenerator[_Embedded]:
        """Starts everything; programs are still loading when this yields. At the end, stops everything in reverse order.

        Raises:
            DyOrcError: If it cannot start.
        """
        settings = self._settings
        logs.set_up(settings.telemetry.logs)
        async with contextlib.AsyncExitStack() as stack:
            traces = stack.enter_context(tracing(settings.telemetry, os.environ))
            programs = dict.fromkeys(program for model in self._models for program in programs_of(model))
            options = {name: overrides.changes for name, overrides in settings.programs.items()}
            stack.enter_context(override_programs(programs, options))
            runtime = await stack.enter_async_context(in_process(ModelRegistry.of(self._models), settings, traces=traces))
            orchestrator = runtime.orchestrator
            drain = Drain(settings.gateway.drain_timeout_s, asyncio.Event())
            stack.push_async_callback(drain.finish, orchestrator.finish_effects)
            histories = stack.enter_context(recording_histories(settings.telemetry.histories))
            pipeline = stack.enter_context(request_pipeline(orchestrator, settings, None, traces, histories))
            jobs = await stack.enter_async_context(Jobs(pipeline.service, store_of(settings.store), settings.jobs))
            application = None if self._app is None else UserApplication(self._app, "beside dyorc.asgi")
            parts = await stack.enter_async_context(gateway_parts(pipeline, jobs, application))
            stack.push_async_callback(drain.finish, jobs.drain)
            if parts.live is not None:
                await stack.enter_async_context(parts.live)
            with drain:
                yield _Embedded(parts.gateway, pipeline.service, application, orchestrator.status)

    # Inside

    def _running(self) -> _Run:
        """Returns the present run; starts one if there is none on this loop."""
        if self._run is None or not self._run.is_usable:
            self._run = _Run(self)
        return self._run

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = AsgiExchange(scope, receive, send, self._cors)
        ready = self._running().ready
        embedded = ready.result() if ready.done() else await asyncio.shield(ready)
        service = embedded.service
        if service.shedding is not None:
            refusal = service.shedding.refusal(exchange.arrived_ns, partial(limit_s_of, scope["headers"]))
            if refusal is not None:
                await write_error(exchange.send, refusal, exchange.ids)
                if (target := target_of(exchange.path)) is not None:
                    arrival = Arrival("http", exchange.ids, exchange.arrived_ns, 0, exchange.read_ns)
                    service.origins.record_refusal(arrival, refusal, lambda: target.model)
                return
        await exchange.run(embedded.gateway)

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands a WebSocket to the user's application; DyOrc has none."""
        if self._app is None:
            await send({"type": "websocket.close", "code": 1000})
            return
        application = (await asyncio.shield(self._running().ready)).application
        assert application is not None
        await application.connect(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Follows the server's lifespan."""
        await receive()
        lifespan = self.lifespan()
        try:
            await lifespan.__aenter__()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        try:
            await lifespan.__aexit__(None, None, None)
        except Exception as error:
            await send({"type": "lifespan.shutdown.failed", "message": str(error)})
            return
        await send({"type": "lifespan.shutdown.complete"})
