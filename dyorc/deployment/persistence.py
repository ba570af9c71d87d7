"""Persists the deployment state in the store."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog

from dyorc.deployment.deployer import Keep
from dyorc.deployment.peers import DEPLOYED
from dyorc.deployment.state import DeploymentState, Version
from dyorc.errors import DyOrcError
from dyorc.store.base import NoteStore, Store

_log = structlog.get_logger("dyorc.deploying")


async def read_record(store: Store, group: str, remembered: Mapping[str, Any] | None) -> DeploymentState:
    """Returns what is deployed, as the other processes remember it or the store has it.

    Args:
        store: Not open yet; it is closed when this returns.
        group: The group that serves it.
    """
    if remembered and DEPLOYED in remembered:
        return DeploymentState.of_json(remembered[DEPLOYED])
    try:
        async with store as notes:
            return await read_stored_record(notes, group)
    except DyOrcError as error:
        _log.warning("deployed_versions_unknown", error=str(error))
        return DeploymentState()


async def read_stored_record(notes: NoteStore, group: str) -> DeploymentState:
    """Returns what is deployed, as an open store has it.

    Raises:
        StoreError: If it cannot be used now.
    """
    text = await notes.noted(_name(group))
    try:
        return DeploymentState() if text is None else DeploymentState.of_json(text)
    except msgspec.MsgspecError as error:
        _log.warning("deployed_versions_unknown", error=str(error))
        return DeploymentState()


def record_writer(store: NoteStore, group: str, before: DeploymentState, is_open: bool) -> Keep:
    """Returns a function that writes the record to the store. Other servers' models of the same group stay as they are."""
    others = dict(before.lines)

    async def keep(text: bytes) -> None:
        if not is_open:
            return
        record = DeploymentState.of_json(text)
        await store.note(_name(group), DeploymentState(record.number, {**others, **record.lines}).to_json())

    return keep


async def read_live_versions(notes: NoteStore, group: str) -> list[Version]:
    """Returns the versions that the last leader of a group had loaded, whether they were on offer or not.

    Raises:
        StoreError: If the store cannot be used now.
    """
    text = await notes.noted(_live(group))
    try:
        return [] if text is None else msgspec.json.decode(text, type=list[Version])
    except msgspec.MsgspecError as error:
        _log.warning("live_versions_unknown", error=str(error))
        return []


async def write_live_versions(notes: NoteStore, group: str, versions: Sequence[Version]) -> None:
    """Writes the loaded versions to the store, for the next leader.

    Raises:
        StoreError: If the store cannot be used now.
    """
    await notes.note(_live(group), msgspec.json.encode(versions))


def _live(group: str) -> str:
    return f"live/{group}"


def _name(group: str) -> str:
    return f"deployed/{group}"
