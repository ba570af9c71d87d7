"""The other processes of a server, which serve the same versions: all load what one of them deploys, and offer it together."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import msgspec
import structlog

from dyorc.deployment.state import DeploymentState, Version
from dyorc.errors import ConflictError, DeployError
from dyorc.gateway.peer_processes import PeerProcesses
from dyorc.models.offers import ModelKey

_log = structlog.get_logger("dyorc.deploying")

DEPLOYED = "deployed"
"""The key under which the other processes remember the record for a process that starts."""
_TURN, _BRING_IN, _STATE, _DISCARD, _SHOW, _RECORD = (
    f"deploying/{question}" for question in ("turn", "bring_in", "state", "discard", "show", "record")
)
_POLL_S = 0.1
_TURN_S = 5.0
"""A process that has the turn loses it if it sends nothing for this long."""
_MAX_WAIT_S = 60.0
_READY, _LOADING = "ready", "loading"


class DeploymentPeers:
    """Deploys together with the other processes. Used on the event loop."""

    def __init__(self, siblings: PeerProcesses) -> None:
        self._siblings = siblings
        self._lock = asyncio.Lock()
        self._turn_of: int | None = None
        self._turn_until_s = 0.0
        self._states: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(
        self,
        bring_in: Callable[[Version], Awaitable[None]],
        discard: Callable[[ModelKey], Awaitable[None]],
        follow: Callable[[DeploymentState], Awaitable[None]],
        record: Callable[[], DeploymentState],
    ) -> None:
        """Answers the other processes, from now on."""
        answer = self._siblings.answer
        answer(_TURN, self._give_turn)
        answer(_BRING_IN, lambda text: self._load(msgspec.json.decode(text, type=Version), bring_in))
        answer(_STATE, lambda arguments: self._state(*arguments))
        answer(_DISCARD, lambda keys: [self._spawn(discard(ModelKey(*key))) for key in keys] and None)
        answer(_SHOW, lambda text: self._spawn(follow(DeploymentState.of_json(text))))
        answer(_RECORD, lambda _: record().to_json().decode())

    async def close(self) -> None:
        """Cancels what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Turns

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Keeps the other processes from deploying while entered.

        Raises:
            ConflictError: If another process takes too long.
        """
        async with self._lock:
            give_up_s = time.monotonic() + _MAX_WAIT_S
            while not await self._ask_for_turn():
                if time.monotonic() > give_up_s:
                    raise ConflictError("another version is being deployed; try again when that has ended")
                await asyncio.sleep(random.uniform(_POLL_S, 3 * _POLL_S))
            try:
                yield
            finally:
                self._give_turn([self._siblings.number, False])
                await asyncio.shield(self._siblings.ask(_TURN, [self._siblings.number, False]))

    async def _ask_for_turn(self) -> bool:
        wanted = [self._siblings.number, True]
        if not self._give_turn(wanted):
            return False
        replies = await self._siblings.ask(_TURN, wanted)
        if all(replies.values.values()):
            return True
        wanted[1] = False
        self._give_turn(wanted)
        await self._siblings.ask(_TURN, wanted)
        return False

    def _give_turn(self, request: list[Any]) -> bool:
        number, is_wanted = request
        now_s = time.monotonic()
        is_free = self._turn_of in (None, number) or now_s > self._turn_until_s
        if not is_wanted:
            if self._turn_of == number:
                self._turn_of = None
            return True
        if is_free:
            self._turn_of, self._turn_until_s = number, now_s + _TURN_S
        return is_free

    # Loading

    async def bring_in(self, version: Version, timeout_s: float) -> None:
        """Makes all others load a version, and returns when its programs are ready in all of them.

        Raises:
            DeployError: If one of them cannot load it.
        """
        text = msgspec.json.encode(version).decode()
        replies = await self._siblings.ask(_BRING_IN, text)
        give_up_s = time.monotonic() + timeout_s
        key = [version.model, version.version]
        while replies.values or replies.errors:
            replies = await self._siblings.ask(_STATE, [*key, self._siblings.number])
            states = {*replies.values.values(), *replies.errors.values()}
            if errors := states - {_READY, _LOADING}:
                raise DeployError(min(errors))
            if states <= {_READY}:
                return
            if time.monotonic() > give_up_s:
                raise DeployError(f"version {version.version!r} is not ready after {timeout_s:g} s in all processes")
            await asyncio.sleep(_POLL_S)

    def _load(self, version: Version, bring_in: Callable[[Version], Awaitable[None]]) -> None:
        key = f"{version.model}@{version.version}"
        self._states[key] = _LOADING

        async def load() -> None:
            try:
                await bring_in(version)
                self._states[key] = _READY
            except Exception as error:
                self._states[key] = str(error) or type(error).__name__

        self._spawn(load())

    def _state(self, model: str, version: str, number: int) -> str:
        if self._turn_of == number:
            self._turn_until_s = time.monotonic() + _TURN_S
        return self._states.get(f"{model}@{version}", "a process has restarted meanwhile; deploy again")

    async def discard(self, keys: Sequence[ModelKey]) -> None:
        """Makes all others drop versions that were never on offer."""
        await self._siblings.ask(_DISCARD, [list(key) for key in keys])

    # Showing

    async def show(self, record: DeploymentState) -> None:
        """Makes all others offer what is deployed now, including processes that start later."""
        self.remember(record)
        await self._siblings.ask(_SHOW, record.to_json().decode())

    def remember(self, record: DeploymentState) -> None:
        """Lets processes that start later serve the same."""
        self._siblings.remember(DEPLOYED, record.to_json().decode())

    async def newest(self) -> DeploymentState | None:
        """Returns the newest record of the others; None without others."""
        replies = await self._siblings.ask(_RECORD)
        records = [DeploymentState.of_json(text) for text in replies.values.values()]
        return max(records, key=lambda record: record.number, default=None)

    def _spawn(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            try:
                await work
            except Exception:
                _log.exception("deploying_failed")

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
