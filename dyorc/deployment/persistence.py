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
    """Returns what is deployed, as others who serve it remember, or the store.

    Args:
        store: Not open yet; it is closed when this returns.
        group: Whose workflows they are.
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
    found = await notes.noted(_name(group))
    try:
        return DeploymentState() if found is None else DeploymentState.of_json(found)
    except msgspec.MsgspecError as error:
        _log.warning("deployed_versions_unknown", error=str(error))
        return DeploymentState()


def record_writer(store: NoteStore, group: str, before: DeploymentState, is_open: bool) -> Keep:
    """Returns what notes the record. Models of others with the same group stay as they are."""
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
    found = await notes.noted(_live(group))
    try:
        return [] if found is None else msgspec.json.decode(found, type=list[Version])
    except msgspec.MsgspecError as error:
        _log.warning("live_versions_unknown", error=str(error))
        return []


async def write_live_versions(notes: NoteStore, group: str, versions: Sequence[Version]) -> None:
    """Notes them for the next leader.

    Raises:
        StoreError: If the store cannot be used now.
    """
    await notes.note(_live(group), msgspec.json.encode(versions))


def _live(group: str) -> str:
    return f"live/{group}"


def _name(group: str) -> str:
    return f"deployed/{group}"
