"""Puts together what deploys versions while a server runs."""

import contextlib
from collections.abc import AsyncGenerator

from dyorc.config import Settings
from dyorc.deployment.deployer import Deployer, Keep
from dyorc.deployment.loaded_versions import DrainCheck, LoadedVersions
from dyorc.deployment.peers import DeploymentPeers
from dyorc.deployment.server_runtime import ServerRuntime
from dyorc.gateway.peer_processes import NoPeers, PeerProcesses
from dyorc.server.program_loading import LoadedTargets


@contextlib.asynccontextmanager
async def deploying(
    served: LoadedTargets,
    running: ServerRuntime,
    settings: Settings,
    quiet: DrainCheck,
    siblings: PeerProcesses | None,
    keep: Keep,
) -> AsyncGenerator[Deployer]:
    """Deploys while entered.

    Args:
        quiet: See `dyorc.deployment.loaded_versions.Quiet`.
        keep: See `dyorc.deployment.deployer.Keep`.
    """
    stage = LoadedVersions(running, served.repertoire, settings.programs, quiet)
    peers = DeploymentPeers(siblings or NoPeers())
    stage.begin(served.versions, served.record)
    deployer = Deployer(stage, peers, settings.deployment, served.targets, keep)
    await deployer.begin(served.record)
    try:
        yield deployer
    finally:
        await peers.close()
        await stage.close()
