"""What a group has deployed belongs to its latest leader: one that does not know yet that it was replaced changes nothing."""

import pytest

from dyorc.deployment.persistence import leaders_record_writer, read_stored_record
from dyorc.deployment.state import DeploymentState
from dyorc.errors import NotReadyError
from dyorc.leader_election.leader import LeaderTerm
from dyorc.server.group_deployments import wait_for_deployed
from dyorc.store.base import NoteFence
from tests.integration.jobs.stored_jobs import MakeStore


def _lead(fence: int, reported: list[int]) -> LeaderTerm:
    return LeaderTerm(group="shop", fence=fence, is_sure=lambda: True, report_fence=reported.append, is_lost=lambda: False)


async def test_a_replaced_leader_cannot_change_what_its_successor_has_read(make_store: MakeStore) -> None:
    reported: list[int] = []
    async with make_store() as store:
        inherited = await wait_for_deployed(store, _lead(1, reported))
        assert inherited is not None
        keep = leaders_record_writer(store, "shop", inherited.record, NoteFence("shop", 1))
        await keep(DeploymentState(1).to_json())
        inherited = await wait_for_deployed(store, _lead(2, reported))
        assert inherited is not None
        assert inherited.record.number == 1
        with pytest.raises(NotReadyError, match="another orchestrator leads group 'shop' by now; nothing has changed"):
            await keep(DeploymentState(2).to_json())
        assert (await read_stored_record(store, "shop")).number == 1
    assert not reported


async def test_a_leader_below_an_earlier_one_gives_up_its_lead(make_store: MakeStore) -> None:
    reported: list[int] = []
    async with make_store() as store:
        await wait_for_deployed(store, _lead(7, reported))
        assert await wait_for_deployed(store, _lead(1, reported)) is None, "the store has lost the leases, not the notes"
    assert reported == [7]
