"""Processes that contend for one lead: a leader that dies or is stopped is succeeded, and one that comes back finds out."""

import os
import signal
from pathlib import Path

import pytest

from dyorc.leader_election.leader_discovery import find_leader
from tests.deadlines import wait_until
from tests.integration.leader_election.contender import contender

pytestmark = pytest.mark.together

_LEASE_S = 1.0


@pytest.fixture
def group(tmp_path: Path) -> str:
    return tmp_path.name


def test_a_leader_that_is_killed_is_succeeded_with_a_higher_fence(setting: str, group: str) -> None:
    with contender(setting, group, _LEASE_S) as one:
        wait_until(one.fence, "the only one leads")
        with contender(setting, group, _LEASE_S) as other:
            one.process.kill()
            wait_until(other.fence, "the other leads")
            assert other.fence() > one.fence()
            wait_until(lambda: find_leader(setting, group), "it is found")
            leader = find_leader(setting, group)
            assert leader is not None
            assert (leader.fence, leader.address) == (other.fence(), f"unix:///nowhere/{other.fence()}")


def test_a_leader_that_was_stopped_for_longer_than_its_lease_learns_that_it_lost(setting: str, group: str) -> None:
    with contender(setting, group, _LEASE_S) as one, contender(setting, group, _LEASE_S) as other:
        wait_until(lambda: one.fence() or other.fence(), "one of them leads")
        stopped, standby = (one, other) if one.fence() else (other, one)
        os.kill(stopped.process.pid, signal.SIGSTOP)
        wait_until(standby.fence, "the other leads")
        assert "lost" not in " ".join(stopped.said)
        os.kill(stopped.process.pid, signal.SIGCONT)
        wait_until(lambda: f"lost {stopped.fence()}" in stopped.said, "it learns that it lost")
        assert standby.fence() > stopped.fence()


def test_a_leader_that_ends_in_order_need_not_be_waited_for(setting: str, group: str) -> None:
    """The lease is an hour, so nobody has waited for its end."""
    with contender(setting, group, 3600.0) as one:
        wait_until(one.fence, "the only one leads")
        one.end()
        with contender(setting, group, 3600.0) as other:
            wait_until(other.fence, "the other leads")
            assert other.fence() > one.fence()


def test_nobody_is_found_where_nobody_leads(setting: str, group: str) -> None:
    assert find_leader(setting, group) is None


def test_nobody_is_found_in_a_store_that_is_away(tmp_path: Path) -> None:
    assert find_leader(f"unix://{tmp_path}/no-redis", "default", 0.5) is None
    (tmp_path / "file").touch()
    assert find_leader(f"sqlite://{tmp_path}/file/jobs.sqlite", "default") is None
