"""The versions that a leader has loaded, noted for the next one: requests of retired versions continue there."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

import structlog

from dyorc.deployment.loaded_versions import DrainCheck, LoadedVersions
from dyorc.deployment.persistence import write_live_versions
from dyorc.errors import StoreError
from dyorc.leader_election.leader import LeaderTerm
from dyorc.store.base import NoteStore

_log = structlog.get_logger("dyorc.orchestrator")

RETURN_S = 10.0
"""Gateways that take longer to find the next leader find only what is on offer."""


class LiveVersions:
    """Notes them.

    Args:
        store: Open.
        lead: The leadership by which they are loaded.
    """

    def __init__(self, store: NoteStore, lead: LeaderTerm) -> None:
        self._store = store
        self._lead = lead
        self._stage: LoadedVersions | None = None
        self._noting = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def of(self, stage: LoadedVersions) -> AsyncGenerator[None]:
        """Follows what is loaded while entered."""
        self._stage = stage
        stage.has_left = self._note_soon
        try:
            yield
        finally:
            self._stage = None
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def note(self) -> None:
        """Notes what is loaded now.

        Raises:
            StoreError: If the store cannot be used now.
        """
        async with self._noting:  # one after the other, so that the last one has the last word
            if self._stage is not None and self._lead.is_sure():
                await write_live_versions(self._store, self._lead.group, self._stage.live)

    def _note_soon(self) -> None:
        task = asyncio.get_running_loop().create_task(self._note_if_possible())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _note_if_possible(self) -> None:
        """Without the store, the next leader loads more than it needs."""
        try:
            await self.note()
        except StoreError as error:
            _log.warning("live_versions_not_noted", error=error.detail)


def since_their_return(begin_epoch: DrainCheck, clock: Callable[[], float]) -> DrainCheck:
    """Returns a check whether earlier requests have ended, also requests of gateways that are about to come back from the last
    leader.

    Args:
        begin_epoch: Asks the gateways that are here.
        clock: Returns the time in seconds.
    """
    until_s = clock() + RETURN_S

    def begin() -> Callable[[], bool]:
        has_ended: Callable[[], bool] | None = None

        def is_over() -> bool:
            nonlocal has_ended
            if has_ended is None and clock() >= until_s:
                has_ended = begin_epoch()
            return has_ended is not None and has_ended()

        return is_over

    return begin
