"""What a server's process needs besides its programs: the store; in a cluster the lead of a group, and keys if there are other
machines."""

import contextlib
from collections.abc import AsyncGenerator

from dyorc.config import ClusterConfig, Settings
from dyorc.errors import ConfigurationError, StoreError
from dyorc.leader_election.leadership_thread import LeadershipThread
from dyorc.store.base import Store
from dyorc.store.opening import store_of
from dyorc.transport.cluster_network import NodeNetwork, read_keys


@contextlib.asynccontextmanager
async def shared_store(settings: Settings) -> AsyncGenerator[Store]:
    """Keeps the store open while entered. Redis may start later; calls raise `StoreError` until then.

    Raises:
        DefinitionError: If the setting names no store.
        ConfigurationError: If the store cannot be opened.
    """
    store = store_of(settings.store)
    try:
        await store.__aenter__()
    except StoreError as error:
        raise ConfigurationError(
            f"{error.detail}; no server starts without its store, which knows what is deployed and who leads: make it usable, or "
            "let DYORC_STORE name another"
        ) from error
    try:
        yield store
    finally:
        await store.__aexit__(None, None, None)


def leadership_of(settings: Settings) -> LeadershipThread:
    """Returns the leadership of the settings' group, to be entered."""
    cluster = settings.cluster
    hang_limit_s = max(cluster.lease_s, 2 * settings.engine.step_limit_s)  # no workflow computes for longer
    return LeadershipThread(settings.store, cluster.group, cluster.lease_s, hang_limit_s)


def network_of(cluster: ClusterConfig) -> NodeNetwork | None:
    """Returns how a process reaches other machines; None if the cluster is on this one.

    Raises:
        ConfigurationError: If there are other machines, and no readable keys.
    """
    if not cluster.host:
        return None
    if not cluster.keys_file:
        raise ConfigurationError(
            f"cluster.host is {cluster.host!r}, so the cluster has other machines, but cluster.keys_file is not set: "
            "`dyorc cluster-keys FILE` makes the keys by which the machines know each other"
        )
    return NodeNetwork(host=cluster.host, secrets=read_keys(cluster.keys_file))
