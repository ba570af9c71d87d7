"""Puts together what deploys versions while a server runs."""

import contextlib
from collections.abc import AsyncGenerator

from dyorc.config import Settings
from dyorc.deploying.deployer import Deployer, Keep
from dyorc.deploying.loaded_versions import DrainCheck, LoadedVersions
from dyorc.deploying.peers import DeploymentPeers
from dyorc.gateway.siblings import NoPeers, PeerProcesses
from dyorc.running import ServerRuntime
from dyorc.services.programs import LoadedTargets


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
        quiet: See `dyorc.deploying.loaded_versions.Quiet`.
        keep: See `dyorc.deploying.deployer.Keep`.
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
