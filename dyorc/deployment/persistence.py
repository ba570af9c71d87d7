"""Persists the deployment state in the store."""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
import structlog

from dyorc.authoring.bundles import path_of
from dyorc.authoring.loading import absolute, parts_of
from dyorc.config import DEFAULT_GROUP
from dyorc.core.decode_errors import DECODE_ERRORS
from dyorc.deployment.deployer import Keep, Read
from dyorc.deployment.peers import DEPLOYED
from dyorc.deployment.state import DeploymentState, ModelHistory, Version
from dyorc.errors import ConfigurationError, ConflictError, NotReadyError, StoreError
from dyorc.gateway.peer_processes import PeerProcesses
from dyorc.store.base import NoteFence, NoteStore

T = TypeVar("T")

_log = structlog.get_logger("dyorc.deploying")

_ASK_AGAIN_S = 0.2


def owner_of_notes(group: str, targets: Iterable[str]) -> str:
    """Returns under which name a server without orchestrators keeps what it has deployed: the group, if one was chosen; otherwise
    the files that it serves, so that servers of other files, which share a user's store, neither read nor change it.

    Args:
        targets: What the server was started with. Their order and the names in their files do not matter.

    Raises:
        DefinitionError: If one is not a target.
    """
    if group != DEFAULT_GROUP:
        return group
    files = sorted({_file_of(parts_of(absolute(target))[0]) for target in targets})
    return f"{group}/{hashlib.sha256(os.fsencode(chr(0).join(files))).hexdigest()[:16]}"


def _file_of(place: str) -> str:
    folder = os.path.realpath(os.getcwd())
    return place if place.endswith(".py") else path_of(place, folder) or f"{folder}:{place}"


def recall_record(peers: PeerProcesses | None) -> DeploymentState | None:
    """Returns what the other processes of a server serve, which a process that starts again serves, too; None if they remember
    nothing of it, or there are none."""
    text = None if peers is None else peers.remembered(DEPLOYED)
    return None if text is None else DeploymentState.of_json(text)


async def wait_for_record(notes: NoteStore, group: str, remembered: DeploymentState | None = None) -> DeploymentState:
    """Returns what is deployed, as the store has it or the other processes remember it, whichever is newer: one that ended may
    have noted a change and told nobody. Waits for the store if nobody remembers anything: whatever is served before it is known
    may be another version than was deployed.

    Args:
        notes: Open.
        group: The group that serves it, or what `owner_of_notes` returns.
        remembered: What `recall_record` returns.

    Raises:
        ConfigurationError: See `read_stored_record`.
    """
    if remembered is None:
        return await wait_for_store(lambda: read_stored_record(notes, group))
    try:
        stored = await read_stored_record(notes, group)
    except StoreError as error:  # the deployer reads it when it can
        _log.warning("deployed_versions_remembered", error=error.detail)
        return remembered
    return max(stored, remembered, key=lambda record: record.number)


async def wait_for_store(read: Callable[[], Awaitable[T]]) -> T:
    """Returns what `read` returns, once the store can be used. The log says if that takes long."""
    has_failed = False
    while True:
        try:
            return await read()
        except StoreError as error:
            if not has_failed:
                _log.warning("store_waited_for", error=error.detail)
            has_failed = True
            await asyncio.sleep(_ASK_AGAIN_S)


async def read_stored_record(notes: NoteStore, group: str) -> DeploymentState:
    """Returns what is deployed, as an open store has it.

    Raises:
        StoreError: If it cannot be used now.
        ConfigurationError: If it holds something else than DyOrc of this version has written.
    """
    text = await notes.noted(_name(group))
    try:
        return DeploymentState() if text is None else DeploymentState.of_json(text)
    except DECODE_ERRORS as error:
        raise ConfigurationError(
            f"the store's note {_name(group)!r} cannot be read, so nobody knows what is deployed: {error}; start the version of "
            "DyOrc that wrote it, or begin anew with another DYORC_CLUSTER__GROUP or DYORC_STORE"
        ) from error


def record_reader(store: NoteStore, group: str, before: DeploymentState, served: DeploymentState) -> Read:
    """Returns a function that reads the record from the store, with the models that this server serves.

    Args:
        before: What the store had when the server started.
        served: What is served of that. The rest is other servers', or has the name of something that is served.
    """
    origins = {line.origin for line in served.lines.values() if line.origin}
    unserved = before.lines.keys() - served.lines.keys()

    def is_served(name: str, line: ModelHistory) -> bool:
        return name not in unserved and (not line.origin or line.origin in origins)

    async def read() -> DeploymentState:
        stored = await read_stored_record(store, group)
        if not origins <= {line.origin for line in stored.lines.values()}:  # a server of other targets wrote it
            return DeploymentState(stored.number)
        return DeploymentState(stored.number, {name: line for name, line in stored.lines.items() if is_served(name, line)})

    return read


def record_writer(store: NoteStore, group: str) -> Keep:
    """Returns a function that writes the record to the store. Other servers' models of the same group stay as they are.

    The function raises `ConflictError`, and has changed nothing, if the store has a record with this number or a later one:
    neither of the two who wrote knew of the other's change, and the earlier one would be lost.
    """

    async def keep(text: bytes) -> None:
        record = DeploymentState.of_json(text)
        stored = await read_stored_record(store, group)
        if stored.number >= record.number:
            raise ConflictError("another process has deployed something meanwhile, and nothing has changed; try again")
        await store.note(_name(group), _beside_others(record, stored))

    return keep


def leaders_record_writer(store: NoteStore, group: str, before: DeploymentState, fence: NoteFence) -> Keep:
    """Returns the same for the leader of a group.

    Args:
        before: What the store had when it began to lead. Nobody else changes that as long as it leads.
        fence: The function raises `NotReadyError`, and has changed nothing, if a later leader has read the record.
    """

    async def keep(text: bytes) -> None:
        if not await store.note(_name(group), _beside_others(DeploymentState.of_json(text), before), fence):
            raise NotReadyError(f"another orchestrator leads group {group!r} by now; nothing has changed")

    return keep


def _beside_others(record: DeploymentState, stored: DeploymentState) -> bytes:
    return DeploymentState(record.number, {**stored.lines, **record.lines}).to_json()


async def read_live_versions(notes: NoteStore, group: str) -> list[Version]:
    """Returns the versions that the last leader of a group had loaded, whether they were on offer or not.

    Raises:
        StoreError: If the store cannot be used now.
    """
    text = await notes.noted(_live(group))
    try:
        return [] if text is None else msgspec.json.decode(text, type=list[Version])
    except DECODE_ERRORS as error:
        _log.warning("live_versions_unknown", error=str(error))
        return []


async def write_live_versions(notes: NoteStore, group: str, versions: Sequence[Version], fence: NoteFence) -> None:
    """Writes the loaded versions to the store, for the next leader; nothing if there is a later one already.

    Raises:
        StoreError: If the store cannot be used now.
    """
    await notes.note(_live(group), msgspec.json.encode(versions), fence)


def _live(group: str) -> str:
    return f"live/{group}"


def _name(group: str) -> str:
    return f"deployed/{group}"
