"""Persists the deployment state in the store."""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import structlog

from dyorc.authoring.bundles import path_of
from dyorc.authoring.loading import absolute, parts_of
from dyorc.config import DEFAULT_GROUP
from dyorc.core.decode_errors import DECODE_ERRORS
from dyorc.deployment.deployer import Keep
from dyorc.deployment.peers import DEPLOYED
from dyorc.deployment.state import DeploymentState, Version
from dyorc.errors import ConfigurationError, NotReadyError, StoreError
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


def recall_record(remembered: Mapping[str, Any] | None) -> DeploymentState | None:
    """Returns what the other processes of a server serve, which a process that starts again serves, too; None if they remember
    nothing of it."""
    return DeploymentState.of_json(remembered[DEPLOYED]) if remembered and DEPLOYED in remembered else None


async def wait_for_record(notes: NoteStore, group: str) -> DeploymentState:
    """Returns what is deployed, as the store has it. Waits for the store: whatever is served before it is known may be another
    version than was deployed.

    Args:
        notes: Open.
        group: The group that serves it, or what `owner_of_notes` returns.

    Raises:
        ConfigurationError: See `read_stored_record`.
    """
    return await wait_for_store(lambda: read_stored_record(notes, group))


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


def record_writer(store: NoteStore, group: str, before: DeploymentState, fence: NoteFence | None = None) -> Keep:
    """Returns a function that writes the record to the store. Other servers' models of the same group stay as they are.

    Args:
        fence: Of the group's leader. The function raises `NotReadyError`, and has changed nothing, if a later leader has read
            the record.
    """
    others = dict(before.lines)

    async def keep(text: bytes) -> None:
        record = DeploymentState.of_json(text)
        text = DeploymentState(record.number, {**others, **record.lines}).to_json()
        if not await store.note(_name(group), text, fence):
            raise NotReadyError(f"another orchestrator leads group {group!r} by now; nothing has changed")

    return keep


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
