"""Batches with effects wait until gateways know, and never run for a request that is run again."""

import asyncio
from unittest import mock

import numpy as np
import pytest

from dyorc.answering.input_identity import InputsIdentity
from dyorc.cluster import effect_announcements
from dyorc.cluster.effect_announcements import EffectAnnouncements, SuspendedRequests
from dyorc.cluster.gateway_sessions import GatewaySession, RemoteRequest
from dyorc.engine.events import RequestArrived
from tests.deadlines import wait_until_async
from tests.workflows import parted

pytestmark = pytest.mark.anyio

HERE, AWAY = GatewaySession(b"1", "here"), GatewaySession(b"2", "away")


def request(session: GatewaySession, number: int) -> RemoteRequest:
    """Returns a request of a gateway's."""
    identity = InputsIdentity("noted", (np.zeros(1),), ())
    return RemoteRequest(session, number, RequestArrived(number, parted.noted, (), identity=identity), identity)


class Ends:
    """What becomes of requests and batches."""

    def __init__(self) -> None:
        self.given_up: list[RemoteRequest] = []
        self.asked_again: list[RemoteRequest] = []
        self.went: list[bool] = []
        aside = SuspendedRequests(lambda session, block: None)
        self.announcements = EffectAnnouncements(lambda *_: None, aside, self.given_up.append, self.asked_again.append)


async def test_of_two_batches_with_a_request_that_was_put_aside_none_runs() -> None:
    ends, own, other = Ends(), request(AWAY, 1), request(HERE, 2)
    with mock.patch.object(effect_announcements, "PATIENCE_S", 0.0):
        ends.announcements.announce({AWAY: [own]}, ends.went.append)
        await wait_until_async(lambda: ends.went, "the first batch is given back")
    ends.announcements.announce({AWAY: [own], HERE: [other]}, ends.went.append)
    ends.announcements.acknowledge(HERE, 2)
    ends.announcements.acknowledge(AWAY, 2)
    ends.announcements.acknowledge(AWAY, 1)
    assert (ends.given_up, ends.asked_again) == ([own], [own])
    assert ends.went == [False, False], "its effect would be had twice"
    assert not other.has_effect


async def test_a_request_that_cannot_begin_again_is_waited_for() -> None:
    ends, own = Ends(), request(AWAY, 1)
    own.has_effect = True
    with mock.patch.object(effect_announcements, "PATIENCE_S", 0.0):
        ends.announcements.announce({AWAY: [own]}, ends.went.append)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert ends.went == ends.given_up == []
    ends.announcements.acknowledge(AWAY, 1)
    assert ends.went == [True]
