"""What an orchestrator's group has deployed: read from the store by the leader, and changed by gateways."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import replace
from typing import NamedTuple

import structlog

from dyorc.cluster.gateway_server import GatewayServer
from dyorc.config import Settings
from dyorc.deployment.loaded_versions import LoadedVersions, ServerRuntime
from dyorc.deployment.persistence import (
    leaders_record_writer,
    read_live_versions,
    read_stored_record,
    record_reader,
    wait_for_store,
    write_live_versions,
)
from dyorc.deployment.state import DeploymentState, Version
from dyorc.errors import NotReadyError, StoreError
from dyorc.leader_election.leader import LeaderTerm
from dyorc.models.submission import BeginEpoch
from dyorc.server.program_loading import LoadedTargets, load_targets, run_deployer
from dyorc.store.base import NoteFence, NoteStore

_log = structlog.get_logger("dyorc.orchestrator")

RETURN_S = 10.0
"""Gateways that take longer to find the next leader get only what is on offer."""


async def read_deployed(store: NoteStore, group: str) -> DeploymentState:
    """Returns what a group has deployed, for a standby that loads it ahead; nothing if the store cannot be used."""
    try:
        return await read_stored_record(store, group)
    except StoreError as error:
        _log.warning("deployed_versions_unknown", error=error.detail)
        return DeploymentState()


class InheritedDeployments(NamedTuple):
    """What a leader finds in the store.

    Attributes:
        record: What is deployed.
        live: The versions that the previous leader had loaded. Gateways may submit requests for any of them.
    """

    record: DeploymentState
    live: Sequence[Version]


async def wait_for_deployed(store: NoteStore, lead: LeaderTerm) -> InheritedDeployments | None:
    """Returns what a group has deployed, and what no earlier leader can change any longer: one that does not know yet that it has
    lost its lead may be about to write. Waits for the store: before it knows, a leader must not serve or end anything.

    Returns:
        None if there was a leader with a higher fence. It is reported, so the lead will be lost.
    """

    async def read() -> InheritedDeployments | None:
        highest = await store.claim_notes(_fence_of(lead))
        if highest > lead.fence:
            lead.report_fence(highest)
            return None
        return InheritedDeployments(await read_stored_record(store, lead.group), await read_live_versions(store, lead.group))

    return await wait_for_store(read)


def _fence_of(lead: LeaderTerm) -> NoteFence:
    return NoteFence(lead.group, lead.fence)


@contextlib.contextmanager
def load_inherited(served: LoadedTargets, inherited: InheritedDeployments, settings: Settings) -> Generator[LoadedTargets]:
    """Loads what was deployed while this process stood by, and versions that earlier requests may need. Their libraries are
    already imported. Targets that were never deployed stay as they were when this process began to stand by: nobody expects a
    change of the disk to go live because a leader was lost."""
    record, live = inherited
    if record.number == served.record.number and not record.retired_of(live):
        yield served
        return
    with load_targets(served.targets, settings, record, live, served.record.code_as_started()) as again:
        yield replace(again, modules=served.modules)


@contextlib.asynccontextmanager
async def serve_deployments(
    served: LoadedTargets,
    running: ServerRuntime,
    settings: Settings,
    gateways: GatewayServer,
    store: NoteStore,
    lead: LeaderTerm,
    before: DeploymentState,
) -> AsyncGenerator[None]:
    """Lets gateways change what is deployed while entered.

    Args:
        before: What the store had when this orchestrator began to lead.
    """
    live = _LiveVersions(store, lead)
    read_stored = record_reader(store, lead.group, before, served.record)
    write = leaders_record_writer(store, lead.group, before, _fence_of(lead))

    async def keep(text: bytes) -> None:
        if not lead.is_sure():
            raise NotReadyError("another orchestrator may lead the group by now; nothing has changed")
        await live.write()  # first: a leader that ends between the two leaves the next one too much, never too little
        await write(text)

    async def read() -> DeploymentState:
        """Reads what this leader has written itself, perhaps with an error of the store for an answer."""
        record = await read_stored()
        return record if lead.is_sure() else DeploymentState()  # or it may be its successor's

    begin_epoch = gateways.control.begin_epoch
    if lead.fence > 1:
        begin_epoch = after_return_of_gateways(begin_epoch, time.monotonic)
    deploying = run_deployer(served, running, settings, begin_epoch, None, keep, read)
    async with deploying as deployer, live.follow(deployer.versions):
        with gateways.control.accept_changes(deployer):
            yield


class _LiveVersions:
    """Keeps the versions that this leader has loaded in the store, for the next leader: requests of retired versions continue
    there.
    """

    def __init__(self, store: NoteStore, lead: LeaderTerm) -> None:
        self._store = store
        self._lead = lead
        self._versions: LoadedVersions | None = None
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def follow(self, versions: LoadedVersions) -> AsyncGenerator[None]:
        """Writes again whenever a version has left, while entered."""
        self._versions = versions
        versions.has_left = self._write_soon
        try:
            yield
        finally:
            self._versions = None
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def write(self) -> None:
        """Writes what is loaded now.

        Raises:
            StoreError: If the store cannot be used now.
        """
        async with self._writing:  # one write at a time, so that the last one stays
            if self._versions is not None and self._lead.is_sure():
                await write_live_versions(self._store, self._lead.group, self._versions.live, _fence_of(self._lead))

    def _write_soon(self) -> None:
        task = asyncio.get_running_loop().create_task(self._write_if_possible())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_if_possible(self) -> None:
        """Without the store, the next leader loads more than it needs."""
        try:
            await self.write()
        except StoreError as error:
            _log.warning("live_versions_not_noted", error=error.detail)


def after_return_of_gateways(begin_epoch: BeginEpoch, clock: Callable[[], float]) -> BeginEpoch:
    """Returns the same, but with requests of gateways that have yet to find this leader: epochs begin after `RETURN_S` seconds.

    Args:
        begin_epoch: Asks the gateways that are connected.
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
