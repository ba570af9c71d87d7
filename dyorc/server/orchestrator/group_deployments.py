"""What an orchestrator's group has deployed: read from the store by the leader, and changed by gateways."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from dataclasses import replace
from typing import NamedTuple

import structlog

from dyorc.cluster.gateway_server import GatewayServer
from dyorc.config import Settings
from dyorc.deployment.deployer import Keep
from dyorc.deployment.persistence import read_live_versions, read_stored_record, record_writer
from dyorc.deployment.server_runtime import ServerRuntime
from dyorc.deployment.state import DeploymentState, Version
from dyorc.errors import NotReadyError, StoreError
from dyorc.leader_election.leader import LeaderTerm
from dyorc.server.deployer_setup import deploying
from dyorc.server.orchestrator.live_versions import LiveVersions, since_their_return
from dyorc.server.program_loading import LoadedTargets, load_targets
from dyorc.store.base import NoteStore

_log = structlog.get_logger("dyorc.orchestrator")

_ASK_AGAIN_S = 0.2


async def read_deployed(store: NoteStore, group: str) -> DeploymentState:
    """Returns what a group has deployed, for a process that prepares to stand by. Without the store: nothing."""
    try:
        return await read_stored_record(store, group)
    except StoreError as error:
        _log.warning("deployed_versions_unknown", error=error.detail)
        return DeploymentState()


class InheritedDeployments(NamedTuple):
    """What a leader finds in the store.

    Attributes:
        record: What is deployed.
        live: The versions that the leader before it had loaded. Gateways may come with requests of any of them.
    """

    record: DeploymentState
    live: Sequence[Version]


async def wait_for_deployed(store: NoteStore, group: str) -> InheritedDeployments:
    """Returns what a group has deployed. Waits for the store: a leader must not serve or end anything before it knows."""
    has_failed = False
    while True:
        try:
            return InheritedDeployments(await read_stored_record(store, group), await read_live_versions(store, group))
        except StoreError as error:
            if not has_failed:
                _log.warning("store_waited_for", error=error.detail)
            has_failed = True
            await asyncio.sleep(_ASK_AGAIN_S)


@contextlib.contextmanager
def load_inherited(served: LoadedTargets, inherited: InheritedDeployments, settings: Settings) -> Generator[LoadedTargets]:
    """Loads what was deployed while this process stood by, and versions that earlier requests may need. Their
    libraries are imported by now."""
    record, live = inherited
    if record.number == served.record.number and not record.left_over(live):
        yield served
        return
    with load_targets(served.targets, settings, record, live) as again:
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
    live = LiveVersions(store, lead)
    keep = _as_leader(record_writer(store, lead.group, before, True), lead, live)
    quiet = gateways.control.begin_epoch if lead.fence == 1 else since_their_return(gateways.control.begin_epoch, time.monotonic)
    async with deploying(served, running, settings, quiet, None, keep) as deployer, live.of(deployer.stage):
        with gateways.control.working_for(deployer):
            yield


def _as_leader(keep: Keep, lead: LeaderTerm, live: LiveVersions) -> Keep:
    async def keep_if_sure(text: bytes) -> None:
        if not lead.is_sure():
            raise NotReadyError("another orchestrator may lead the group by now; nothing has changed")
        await live.note()  # first: a leader that ends between the two leaves the next one too much, never too little
        await keep(text)

    return keep_if_sure
