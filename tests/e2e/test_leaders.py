"""Orchestrators on two hosts take turns at leading, on a Ray cluster of two nodes. Replicas stay loaded meanwhile."""

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.leaders import Leaders
from tests.ray_nodes import ray_environment, ray_nodes
from tests.redis_server import RedisServer
from tests.two_hosts import TwoHosts, why_not
from tests.workflows import far

pytestmark = pytest.mark.ray


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoHosts]:
    if reason := why_not():
        pytest.skip(reason)
    with ray_environment() as (folder, environment), ray_nodes(folder, monkeypatch, environment) as hosts:
        yield hosts


@pytest.mark.slow
def test_replicas_stay_loaded_while_their_orchestrator_is_killed_stopped_or_replaced(cluster: TwoHosts, tmp_path: Path) -> None:
    with RedisServer() as redis:
        leaders = Leaders(cluster.first, redis.url, tmp_path)
        with leaders.start(cluster.first, "far", "carried_far") as first:
            replicas = first.wait_for("ready")
            first_fence = first.wait_for("leads")
            pids = [*replicas["make_there"], *replicas["digest_here"]]
            assert first.ask(1) == [far.checksum_of(far.words_of(1)), *pids]
            with leaders.start(cluster.second, "far", "carried_far") as second:
                second.wait_for("standing_by")
                first.signal(signal.SIGKILL)
                assert second.wait_for("leads") > first_fence
                assert second.wait_for("ready") == replicas, "the same processes"
                assert second.ask(2) == [far.checksum_of(far.words_of(2)), *pids]
                with leaders.start(cluster.first, "far", "carried_far") as third:
                    third.wait_for("standing_by")
                    second.signal(signal.SIGSTOP)
                    assert third.wait_for("ready") == replicas
                    second.signal(signal.SIGCONT)
                    assert "another orchestrator leads" in second.wait_for("over")
                    assert third.ask(3) == [far.checksum_of(far.words_of(3)), *pids], "the one that lost has taken nothing along"
                    third.end()
        assert all(psutil.pid_exists(pid) for pid in pids), "they wait for the next leader"
