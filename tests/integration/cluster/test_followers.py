"""A gateway follows one leader after the other, and tells each what it told the last."""

import asyncio
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from structlog.testing import capture_logs

from dyorc.answering.local_answers import own_arrays
from dyorc.cells.orchestrator_cell import make_shared_cell
from dyorc.config import LogsConfig, Settings
from dyorc.errors import InvalidInputError, NotReadyError, UnknownModelError
from dyorc.models.registry import ModelRegistry
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.telemetry.critical_path import WrongGuesses
from dyorc.telemetry.diagnosis import diagnose
from dyorc.telemetry.record import Origin, RequestRecord, RequestRecorder
from tests.asking import submission
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.integration.cluster.ends import Lead, Told, gateway, gateway_server_of
from tests.integration.cluster.test_groups import leading
from tests.integration.stack import FAST_TRANSPORT, within
from tests.workflows import arithmetic, parted, scaled


async def test_settings_of_the_log_are_told_to_the_next_leader(tmp_path: Path) -> None:
    leaders, asked = Told(), LogsConfig(level="debug")
    with mock.patch.object(Orchestrator, "set_logs") as set_logs:
        async with gateway(leaders) as backend:
            backend.set_logs(asked)
            for fence in (1, 2):
                async with leading(leaders, [parted.squared], tmp_path, fence):
                    await wait_until_async(lambda fence=fence: set_logs.call_count == fence, "a leader knows the settings")
                await wait_until_async(lambda: not backend.is_connected, "it is away")
    assert [call.args for call in set_logs.call_args_list] == [(asked,), (asked,)]


async def test_what_an_orchestrator_does_not_scale_it_refuses_at_the_gateway_in_its_own_words(tmp_path: Path) -> None:
    leaders = Told()
    async with gateway(leaders) as backend:
        with pytest.raises(NotReadyError, match="group 'default' has no leader now, so nothing can be scaled"):
            await backend.scale("pid", 1, None)
        async with leading(leaders, [scaled.where], tmp_path):
            await wait_until_async(lambda: backend.status.programs, "its programs are known")
            with pytest.raises(InvalidInputError, match=r"program 'pid': 2 warm and 0 parked replicas, expected at most 1"):
                await backend.scale("pid", 2, None)
            with pytest.raises(UnknownModelError, match=r"there is no program 'rare'; there are \['pid'\]"):
                await backend.scale("rare", 1, None)
            await backend.scale("pid", 1, None)
            await wait_until_async(lambda: backend.status.programs["pid"].num_wanted == 1, "it is wanted")


async def test_a_leader_that_answers_after_the_next_one_was_found_is_not_followed(tmp_path: Path) -> None:
    leaders, lead = Told(), Lead()
    lead.is_sure = False  # so its welcome waits
    async with (
        make_shared_cell(ModelRegistry.of([parted.squared]), Settings(transport=FAST_TRANSPORT), "here", None) as cell,
        gateway_server_of(cell, f"unix://{tmp_path}/first", lead=lead.term(1)) as first,
        gateway_server_of(cell, f"unix://{tmp_path}/next", lead=Lead().term(2)) as second,
        gateway(leaders) as backend,
    ):
        with capture_logs() as lines:
            leaders.tell(first, 1)
            await wait_until_async(lambda: first.num_gateways, "it has greeted the first")
            leaders.tell(second, 2)
            lead.is_sure = True
            await wait_until_async(lambda: backend.fence == 2, "it follows the next")
        assert [line["fence"] for line in lines if line["event"] == "orchestrator_joined"] == [2]


async def test_a_request_that_waits_for_a_leader_says_when_it_was_sent_to_one(tmp_path: Path) -> None:
    leaders, records = Told(), list[RequestRecord]()
    recorder = mock.Mock(RequestRecorder, ended=records.append, **{"wants.return_value": True})
    async with gateway(leaders) as backend:
        origin = Origin(request_id="a", transport="http")
        asked = submission(arithmetic.quadruple, [np.zeros(4, np.float32)], terms=within(60), origin=origin, recorder=recorder)
        asking = asyncio.create_task(backend.infer(asked, take=own_arrays))
        async with leading(leaders, [arithmetic.quadruple], tmp_path):
            await asyncio.wait_for(asking, TIMEOUT_S)
    (record,) = records
    (note,) = record.story.notes
    assert note.text() == "it was sent to the next leader of its group"
    assert record.started_ns < note.at_ns < record.story.calls[0].asked_ns
    assert "until it was sent to the next leader" in " ".join(diagnose(record, WrongGuesses()).sentences)
