"""Ranks that are forked are what spawned ones are, a killed one is missed by its group, and nothing is left."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from dyorc.errors import PlanRunError
from dyorc.planner.runtime import RankForkServer, RankOptions, Ranks
from dyorc.planner.runtime.rank_processes import RankProcess, spawn_rank
from tests.deadlines import TIMEOUT_S, wait_until
from tests.integration.planner.plans import data_parallel
from tests.integration.planner.probing_rank import facts_of
from tests.leaks import no_leaks
from tests.unit.planner.examples import example

_PARENT = """
import os, signal, sys
from dyorc.planner.runtime import RankForkServer

fork_server = RankForkServer()
ranks = [fork_server.fork(1.0) for _ in range(2)]
os.kill(ranks[1].pid, signal.SIGSTOP)
print(fork_server.pid, *(rank.pid for rank in ranks), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def probing() -> Iterator[RankForkServer]:
    """Forks ranks that tell what they are like."""
    with RankForkServer(TIMEOUT_S, "tests.integration.planner.probing_rank") as started:
        yield started


@contextlib.contextmanager
def _forked(fork_server: RankForkServer) -> Iterator[RankProcess]:
    process = fork_server.fork(TIMEOUT_S)
    try:
        yield process
    finally:
        process.kill()
        process.wait(TIMEOUT_S)
        process.wire.end.close()


def _has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_forked_rank_is_what_a_new_process_would_be(
    probing: RankForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLOUR", "red")
    with _forked(probing) as one:
        first = facts_of(one.wire.end)
        monkeypatch.delenv("COLOUR")
        monkeypatch.chdir(tmp_path)
        with _forked(probing) as other:
            second = facts_of(other.wire.end)
    assert first["environment"]["COLOUR"] == "red"
    assert second["environment"] == {**os.environ, "OMP_NUM_THREADS": "1"}
    assert second["folder"] == str(tmp_path)
    assert second["pid"] == second["session"] == other.pid != one.pid
    assert second["files"].pop("0") == "/dev/null"
    assert [second["files"].pop(number) for number in "12"] == [os.readlink(f"/proc/self/fd/{number}") for number in "12"]
    kinds = [target.partition(":")[0] for target in second["files"].values() if not target.startswith("/")]
    assert kinds == ["socket"], "its wire, and nothing of the fork server or of the other rank"
    assert not set(first["draws"]) & set(second["draws"])
    assert second["num_threads"] == [1, 1]
    assert not second["has_cuda"]


def test_how_a_rank_ends_is_told(probing: RankForkServer) -> None:
    with _forked(probing) as process:
        facts_of(process.wire.end)
        with pytest.raises(TimeoutError):
            process.wait(0)
        process.wire.end.shutdown(1)
        assert process.wait(TIMEOUT_S) == 7
        process.kill()
        assert process.wait(0) == 7
    with _forked(probing) as process:
        os.kill(process.pid, signal.SIGSTOP)
        process.kill()
        assert process.wait(TIMEOUT_S) == -signal.SIGKILL
        assert not Path(f"/proc/{process.pid}").exists()


def test_forked_ranks_compute_what_spawned_ones_do_to_the_bit(fork_server: RankForkServer) -> None:
    found, options = example("gpt"), RankOptions(num_ranks=2, device="cpu")
    plan = data_parallel(found, (3, 1), num_parts=2)
    with Ranks(options, fork_server.fork) as forked, Ranks(options, spawn_rank) as others:
        for overlap in (False, True):
            one = forked.run(plan, found.sources, overlap=overlap).results
            other = others.run(plan, found.sources, overlap=overlap).results
            assert one.keys() == other.keys()
            assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_ranks_outlive_the_fork_servers_process_and_another_takes_its_place() -> None:
    found = example("gpt")
    plan = data_parallel(found, (1, 1))
    with RankForkServer(TIMEOUT_S) as fork_server, Ranks(RankOptions(num_ranks=2), fork_server.fork) as ranks:
        first = fork_server.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        with Ranks(RankOptions(num_ranks=2), fork_server.fork) as others:
            assert fork_server.pid != first
            results = [group.run(plan, found.sources).results for group in (ranks, others)]
            assert all(torch.equal(tensor, results[1][name]) for name, tensor in results[0].items())
        os.kill(ranks.pids[1], signal.SIGKILL)
        with pytest.raises(PlanRunError, match="rank 1 has ended"):  # nobody knows how
            ranks.run(plan, found.sources)


def test_closing_a_fork_server_ends_its_ranks() -> None:
    with contextlib.ExitStack() as stack:
        with RankForkServer(TIMEOUT_S, "tests.integration.planner.probing_rank") as fork_server:
            process = stack.enter_context(_forked(fork_server))
            os.kill(process.pid, signal.SIGSTOP)
            pid = fork_server.pid
        assert pid is not None
        assert fork_server.pid is None
        assert not Path(f"/proc/{pid}").exists()
        wait_until(lambda: _has_ended(process.pid), "the rank is gone")


def test_all_end_when_the_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(pids) == 3
    wait_until(lambda: all(map(_has_ended, pids)), "the fork server's process has ended, and both ranks, one of them stopped")


def test_a_rank_that_a_test_leaves_is_found(fork_server: RankForkServer) -> None:
    with contextlib.ExitStack() as stack:
        with pytest.raises(AssertionError, match=r"left behind: .*process: \d+ ") as raised, no_leaks(timeout_s=0):
            process = stack.enter_context(_forked(fork_server))
        assert f"process: {process.pid} " in str(raised.value)
    with no_leaks(), _forked(fork_server):  # the fork server was there before
        pass


def test_a_fork_server_that_cannot_fork_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    with RankForkServer(TIMEOUT_S, "tests.no_such_module") as fork_server:
        with pytest.raises(PlanRunError, match="the process that forks ranks ended with exit code 1 before it had forked one"):
            fork_server.fork(1.0)
        assert "No module named 'tests.no_such_module'" in capfd.readouterr().err
    with RankForkServer(0.1) as fork_server:
        assert fork_server.pid is not None
        os.kill(fork_server.pid, signal.SIGSTOP)
        with pytest.raises(PlanRunError, match=r"the process that forks ranks has not answered within 0\.1 s"):
            fork_server.fork(1.0)
