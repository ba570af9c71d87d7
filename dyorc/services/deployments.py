"""Puts together what deploys versions while a server runs."""

import contextlib
from collections.abc import AsyncGenerator

from dyorc.config import Settings
from dyorc.deploying.deployer import Deployer, Keep
from dyorc.deploying.peers import Peers
from dyorc.deploying.stage import Quiet, Stage
from dyorc.gateway.siblings import NoPeers, Siblings
from dyorc.running import Running
from dyorc.services.programs import Loaded


@contextlib.asynccontextmanager
async def deploying(
    what: Loaded,
    running: Running,
    settings: Settings,
    quiet: Quiet,
    siblings: Siblings | None,
    keep: Keep,
) -> AsyncGenerator[Deployer]:
    """Deploys while entered.

    Args:
        quiet: See `dyorc.deploying.stage.Quiet`.
        keep: See `dyorc.deploying.deployer.Keep`.
    """
    stage = Stage(running, what.repertoire, settings.programs, quiet)
    peers = Peers(siblings or NoPeers())
    stage.begin(what.versions, what.record)
    deployer = Deployer(stage, peers, settings.deployment, what.targets, keep)
    await deployer.begin(what.record)
    try:
        yield deployer
    finally:
        await peers.close()
        await stage.close()
