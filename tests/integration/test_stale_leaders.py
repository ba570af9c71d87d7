"""A leader that was stopped just before it wrote, and goes on after the next one has read, changes nothing."""

from pathlib import Path

import pytest

from dyorc.authoring.bundles import Bundle
from dyorc.deployment.persistence import record_writer, write_live_versions
from dyorc.deployment.state import DeploymentState, ModelHistory, Version
from dyorc.errors import NotReadyError
from dyorc.server.group_deployments import wait_for_deployed
from dyorc.store.sqlite import SqliteStore

pytestmark = pytest.mark.anyio

_GROUP = "default"


def version(name: str) -> Version:
    return Version(model="flow", version=name, bundle=Bundle("/app.py:flow", "app"), names={})


def state(*names: str) -> DeploymentState:
    """Returns what is deployed after these versions, one after the other."""
    history = ModelHistory.starting_with(version(names[0]))
    for name in names[1:]:
        history = history.with_version(version(name), 1.0)
    return DeploymentState(len(names), {"flow": history})


async def test_what_a_stale_leader_writes_does_not_undo_what_the_next_one_has_deployed(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "store.db") as store:
        inherited = await wait_for_deployed(store, _GROUP, 1)
        first = record_writer(store, _GROUP, inherited.record, True, 1)
        await first(state("1").to_json())
        await write_live_versions(store, _GROUP, [version("1")], 1)

        inherited = await wait_for_deployed(store, _GROUP, 2)
        assert (inherited.record, inherited.live, inherited.fence) == (state("1"), [version("1")], 2)
        second = record_writer(store, _GROUP, inherited.record, True, 2)
        await second(state("1", "2").to_json())

        with pytest.raises(NotReadyError, match="another orchestrator leads the group by now"):
            await first(state("1", "late").to_json())
        with pytest.raises(NotReadyError):
            await write_live_versions(store, _GROUP, [], 1)
        inherited = await wait_for_deployed(store, _GROUP, 3)
        assert (inherited.record, inherited.live) == (state("1", "2"), [version("1")])


async def test_a_leader_learns_of_a_higher_fence_that_the_leases_have_forgotten(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "store.db") as store:
        await wait_for_deployed(store, _GROUP, 7)
        assert (await wait_for_deployed(store, _GROUP, 1)).fence == 7
