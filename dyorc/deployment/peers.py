"""The other processes of a server, which serve the same versions: all load what one of them deploys, and offer it together."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
import structlog

from dyorc.deployment.state import DeploymentState, Version
from dyorc.errors import ConflictError, DeployError, StoreError
from dyorc.gateway.peer_processes import PeerProcesses
from dyorc.models.offers import ModelKey

_log = structlog.get_logger("dyorc.deploying")

DEPLOYED = "deployed"
"""The key under which the other processes remember the record for a process that starts."""
_TURN, _BRING_IN, _STATE, _DISCARD, _SHOWN = (
    f"deploying/{question}" for question in ("turn", "bring_in", "state", "discard", "shown")
)
_FIRST_POLL_S, _POLL_S = 0.01, 0.1
_TURN_S, _HOLD_S = 5.0, 1.0
"""A process that has the turn says so this often, and loses it if it says nothing for this long."""
_TRY_AGAIN_S = 1.0
_MAX_WAIT_S = 60.0
_READY, _LOADING = "ready", "loading"


def _now_text() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class DeployedHere(Protocol):
    """What this process has loaded and offers."""

    @property
    def num_shown(self) -> int:
        """The number of the record that this process offers."""
        ...

    async def bring_in(self, version: Version) -> None:
        """Loads a version, and returns when its programs are ready. Raises DeployError if it cannot be loaded."""
        ...

    async def discard(self, key: ModelKey) -> None:
        """Drops a version, unless it is deployed."""
        ...

    def take_over(self, record: DeploymentState) -> None:
        """Begins with this record from now on, if it is newer."""
        ...

    async def show(self) -> None:
        """Loads and offers what is deployed. Raises DeployError if it cannot be loaded."""
        ...

    async def read_again(self) -> None:
        """Takes over what the store has, if it is newer, and tells the others. Raises StoreError if it cannot be used now."""
        ...


class DeploymentPeers:
    """Deploys together with the other processes. Used on the event loop."""

    def __init__(self, siblings: PeerProcesses) -> None:
        self._siblings = siblings
        self._lock = asyncio.Lock()
        self._turn_of: int | None = None
        self._turn_until_s = 0.0
        self._work = self._since = ""
        self._num_told = 0
        self._states: dict[ModelKey, str] = {}
        self._loads: dict[ModelKey, asyncio.Task[None]] = {}
        self._clearing: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, here: "DeployedHere") -> None:
        """Answers the other processes, from now on."""
        self._here = here
        answer = self._siblings.answer
        answer(_TURN, self._give_turn)
        answer(_BRING_IN, lambda text: self._load(msgspec.json.decode(text, type=Version)))
        answer(_STATE, lambda key: self._state(ModelKey(*key)))
        answer(_DISCARD, lambda keys: self._discard([ModelKey(*key) for key in keys]))
        answer(_SHOWN, lambda _: here.num_shown)
        self._siblings.on_remembered(DEPLOYED, lambda text: self._follow(DeploymentState.of_json(text)))
        self._siblings.on_loss(self._lose)

    async def close(self) -> None:
        """Cancels what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Turns

    @contextlib.asynccontextmanager
    async def turn(self, work: str) -> AsyncGenerator[None]:
        """Keeps the other processes from deploying while entered, and knows what they have deployed before.

        Args:
            work: What is done meanwhile, for people who wait for it.

        Raises:
            ConflictError: If another process takes too long.
            DeployError: If this process cannot load what is deployed.
            StoreError: If the store cannot be used now.
        """
        async with self._lock:
            give_up_s = time.monotonic() + _MAX_WAIT_S
            while not await self._ask_for_turn(wanted := [self._siblings.number, True, work, _now_text()]):
                if time.monotonic() > give_up_s:
                    raise ConflictError("another version is being deployed; try again when that has ended")
                await asyncio.sleep(random.uniform(_POLL_S, 3 * _POLL_S))
            holding = self._spawn(self._hold_turn(wanted))
            try:
                await self._here.read_again()
                await self._here.show()
                await self._cleared()
                yield
            finally:
                holding.cancel()
                self._give_turn([self._siblings.number, False])
                await asyncio.shield(self._siblings.ask(_TURN, [self._siblings.number, False]))

    def work(self) -> dict[str, str] | None:
        """Returns what is being done by whichever process has the turn, and since when (ISO 8601); None if nothing is."""
        if self._turn_of is None or time.monotonic() > self._turn_until_s:
            return None
        return {"change": self._work, "since": self._since}

    async def _ask_for_turn(self, wanted: list[Any]) -> bool:
        if not self._give_turn(wanted):
            return False
        replies = await self._siblings.ask(_TURN, wanted)
        if all(replies.values.values()):
            return True
        no_longer = [self._siblings.number, False]
        self._give_turn(no_longer)
        await self._siblings.ask(_TURN, no_longer)
        return False

    async def _hold_turn(self, wanted: list[Any]) -> None:
        """Keeps the turn while code is imported, programs load, or the store is slow."""
        while True:
            await asyncio.sleep(_HOLD_S)
            self._give_turn(wanted)
            await self._siblings.ask(_TURN, wanted)

    def _give_turn(self, request: list[Any]) -> bool:
        number, is_wanted, *work = request
        now_s = time.monotonic()
        is_free = self._turn_of in (None, number) or now_s > self._turn_until_s
        if not is_wanted:
            if self._turn_of == number:
                self._turn_of = None
            return True
        if is_free:
            if self._turn_of != number:
                self._loads.clear()
            self._turn_of, self._turn_until_s = number, now_s + _TURN_S
            self._work, self._since = work
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
            replies = await self._siblings.ask(_STATE, key)
            states = {*replies.values.values(), *replies.errors.values()}
            if errors := states - {_READY, _LOADING}:
                raise DeployError(min(errors))
            if states <= {_READY}:
                return
            if time.monotonic() > give_up_s:
                raise DeployError(f"version {version.version!r} is not ready after {timeout_s:g} s in all processes")
            await asyncio.sleep(_POLL_S)

    def _load(self, version: Version) -> None:
        key = ModelKey(version.model, version.version)
        self._states[key] = _LOADING

        async def load() -> None:
            try:
                await self._cleared()
                await self._here.bring_in(version)
                self._states[key] = _READY
            except Exception as error:
                self._states[key] = str(error) or type(error).__name__

        self._loads[key] = self._spawn(load())

    def _state(self, key: ModelKey) -> str:
        return self._states.get(key, "a process has restarted meanwhile; deploy again")

    async def discard(self, keys: Sequence[ModelKey]) -> None:
        """Makes all others drop versions that were never on offer."""
        await self._siblings.ask(_DISCARD, [list(key) for key in keys])

    def _discard(self, keys: Sequence[ModelKey]) -> None:
        self._clear_with(self._drop({key: self._loads.pop(key) for key in keys if key in self._loads}))

    async def _drop(self, loads: Mapping[ModelKey, asyncio.Task[None]]) -> None:
        """Drops versions that were brought in, unless they are deployed. One that is still being loaded would come after this."""
        for load in loads.values():
            load.cancel()
        await asyncio.gather(*loads.values(), return_exceptions=True)
        for key in loads:
            await self._here.discard(key)

    # Showing

    async def show(self, record: DeploymentState, timeout_s: float) -> None:
        """Makes all others offer what is deployed now, including processes that start later, and returns when all that answer do.
        The log names the ones that need longer than `timeout_s`.
        """
        self.tell(record)
        give_up_s, poll_s = time.monotonic() + timeout_s, _FIRST_POLL_S
        while True:
            replies = await self._siblings.ask(_SHOWN)
            behind = sorted(number for number, num_shown in replies.values.items() if num_shown < record.number)
            if not behind:
                return
            if time.monotonic() > give_up_s:
                _log.warning("deployed_late", processes=behind)
                return
            await asyncio.sleep(poll_s)
            poll_s = min(2 * poll_s, _POLL_S)

    def tell(self, record: DeploymentState) -> None:
        """Makes all others follow a record that the store has, including processes that start later, unless they know it."""
        if record.number > self._num_told:
            self._num_told = record.number
            self._siblings.remember(DEPLOYED, record.to_json().decode())

    def _follow(self, record: DeploymentState) -> None:
        self._num_told = record.number
        self._here.take_over(record)
        self._spawn(self._show_here())

    async def _show_here(self) -> None:
        """Shows what is deployed, sooner or later: the others show it already. Each reason why not is logged once."""
        pause_s, complaint = _TRY_AGAIN_S, ""
        while True:
            try:
                return await self._here.show()
            except Exception as error:
                if str(error) != complaint:
                    _log.exception("deploying_failed")
                complaint = str(error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_WAIT_S)

    # Losses

    def catch_up_later(self) -> None:
        """Reads once more what is deployed, as soon as the store can be used."""
        self._spawn(self._catch_up({}))

    def _lose(self, number: int) -> None:
        """Does what a process that has ended may have left to do: it has noted a change, and told nobody; or it has made the
        others bring in versions, and noted nothing."""
        left_over: Mapping[ModelKey, asyncio.Task[None]] = {}
        if self._turn_of == number:
            self._turn_of = None
            left_over, self._loads = self._loads, {}
        self._clear_with(self._catch_up(left_over))

    async def _catch_up(self, left_over: Mapping[ModelKey, asyncio.Task[None]]) -> None:
        has_failed = False
        while True:
            try:
                await self._here.read_again()
                break
            except StoreError as error:
                if not has_failed:
                    _log.warning("deployed_versions_unknown", error=error.detail)
                has_failed = True
            await asyncio.sleep(_TRY_AGAIN_S)
        self._spawn(self._show_here())
        await self._drop(left_over)

    def _clear_with(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._spawn(work)
        self._clearing.add(task)
        task.add_done_callback(self._clearing.discard)

    async def _cleared(self) -> None:
        """Returns when nothing is left over from deployments that failed: a version that comes may have the name of theirs."""
        while self._clearing:
            await asyncio.wait(self._clearing)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def run() -> None:
            try:
                await work
            except Exception:
                _log.exception("deploying_failed")

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it was cancelled before it began
        return task
