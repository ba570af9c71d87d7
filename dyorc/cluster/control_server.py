"""The orchestrator's end of changes that gateways request: which versions are deployed, and how many replicas a program keeps."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Sequence
from itertools import count
from typing import Any, Protocol, TypeAlias

import structlog

from dyorc.cluster.cluster_messages import Change, ChangeDone, ChangeRefused, DrainQuery, FromOrchestrator, Scale
from dyorc.cluster.gateway_sessions import GatewaySession
from dyorc.errors import DyOrcError, UnsupportedError
from dyorc.protocol.deployment_changes import DeploymentChange
from dyorc.transport.error_codec import pack_error

_log = structlog.get_logger("dyorc.orchestrator")

_HEARD_S = 5.0
"""How long a gateway that hangs may delay an answer."""

Scaling: TypeAlias = Callable[[str, int | None, int | None], Awaitable[None]]


class DeploymentHandler(Protocol):
    """Changes which versions are deployed."""

    async def change(self, change: DeploymentChange) -> dict[str, Any]:
        """Deploys, undeploys, or rolls back. Returns the model's versions after that."""
        ...

    def report(self) -> dict[str, Any]:
        """Returns what is deployed, by model."""
        ...


class ControlServer:
    """Carries out the changes that gateways request. Used on the event loop.

    Args:
        send: Sends a message to a gateway.
        sessions: Returns the connected gateways.
        scale: Sets how many replicas a program keeps (`Orchestrator.scale`).
    """

    def __init__(
        self,
        send: Callable[[GatewaySession, FromOrchestrator], None],
        sessions: Callable[[], Sequence[GatewaySession]],
        scale: Scaling,
    ) -> None:
        self._send = send
        self._sessions = sessions
        self._scale = scale
        self._handler: DeploymentHandler | None = None
        self._numbers = count(1)
        self._undrained: dict[int, set[GatewaySession]] = {}
        self._has_reply = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def accept_changes(self, handler: DeploymentHandler) -> Generator[None]:
        """Passes deployment changes to the handler while entered. Unfinished changes are cancelled at the end."""
        self._handler = handler
        try:
            yield
        finally:
            self._handler = None
            for task in self._tasks:
                task.cancel()

    def report(self) -> dict[str, Any]:
        """Returns what is deployed, by model."""
        return {} if self._handler is None else self._handler.report()

    def start_change(self, session: GatewaySession, change: Change | Scale) -> None:
        """Carries out a change in a task, and sends its gateway the result."""
        task = asyncio.create_task(self._answer(session, change))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, session: GatewaySession, change: Change | Scale) -> None:
        try:
            answer: FromOrchestrator = ChangeDone(change.number, await self._carry_out(change))
        except Exception as error:
            if not isinstance(error, DyOrcError):
                _log.exception("change_failed")
            answer = ChangeRefused(change.number, *pack_error(error))
        self._send(session, answer)

    async def _carry_out(self, change: Change | Scale) -> dict[str, Any]:
        if isinstance(change, Scale):
            await self._scale(change.program, change.num_warm, change.num_parked)
            return {}
        if self._handler is None:
            raise UnsupportedError("this server accepts no deployments now")
        versions = await self._handler.change(change.unpack())
        await self._wait_until_offered()
        return versions

    # What gateways confirm

    async def _wait_until_offered(self) -> None:
        """Waits until all gateways offer the new versions, so that the client's next request reaches them through any gateway."""
        have_all_replied = self._query_all(with_requests=False)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HEARD_S):
                while not have_all_replied():
                    self._has_reply.clear()
                    await self._has_reply.wait()

    def begin_epoch(self) -> Callable[[], bool]:
        """Returns a function that says whether all requests of all gateways have ended that had begun by this moment."""
        return self._query_all(with_requests=True)

    def _query_all(self, *, with_requests: bool) -> Callable[[], bool]:
        number = next(self._numbers)
        sessions = list(self._sessions())  # asked in their order: that of a set follows from addresses, and no run repeats it
        if sessions:
            self._undrained[number] = set(sessions)
        for session in sessions:
            self._send(session, DrainQuery(number, with_requests))
        return lambda: number not in self._undrained

    def confirm_drained(self, session: GatewaySession, number: int) -> None:
        """Notes a gateway's reply: it offers the new versions, or its earlier requests have ended."""
        sessions = self._undrained.get(number, set())
        sessions.discard(session)
        if not sessions:
            self._undrained.pop(number, None)
        self._has_reply.set()

    def drop_session(self, session: GatewaySession) -> None:
        """Waits no longer for a gateway that is gone."""
        for number in list(self._undrained):
            self.confirm_drained(session, number)
