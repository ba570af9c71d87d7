"""Processes of a real server are killed while 32 clients send. One server for all of them: the last test kills the server."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import numpy as np
import psutil
import pytest

from dyorc.replica.server_home import clear_up
from dyorc.testing import ServerProcess
from dyorc.transport.arena_file import sweep
from tests import oip
from tests.deadlines import wait_until
from tests.server_process import client_of, replica_pids

pytestmark = pytest.mark.ray

_NUM_CLIENTS = 32
_PAUSE_S = 0.05
"""Pause between two requests of a client: the faults are tested, not the load."""


@dataclass
class Load:
    """What 32 clients have seen so far."""

    latencies_s: list[float] = field(default_factory=list[float])
    failures: list[str] = field(default_factory=list[str])
    is_over: threading.Event = field(default_factory=threading.Event)

    def wait_for_answers(self, num: int) -> None:
        """Returns once there are `num` more answers."""
        wanted = len(self.latencies_s) + num
        wait_until(lambda: len(self.latencies_s) >= wanted or self.failures, f"{num} more answers")

    def send(self, client: httpx.Client, model: str, number: int) -> None:
        """Runs one client: one request after the other, each answer checked."""
        at = 0
        while not self.is_over.is_set():
            x = np.array([number, at, 0.5, -1], np.float32)
            body = oip.binary_body({"x": x}, id=f"{number}-{at}")
            started_s = time.monotonic()
            try:
                response = client.post(f"/v2/models/{model}/infer", content=body.content, headers=body.headers)
                answer = oip.read(response)
                np.testing.assert_array_equal(answer.outputs["output"], x * 4)
                assert answer.head["id"] == f"{number}-{at}"
            except (httpx.HTTPError, AssertionError) as error:
                self.failures.append(f"{model} {number}-{at}: {error!r}")
                return
            self.latencies_s.append(time.monotonic() - started_s)
            at += 1
            self.is_over.wait(_PAUSE_S)


@contextmanager
def load(server: ServerProcess, model: str) -> Iterator[Load]:
    """Runs 32 clients that send while it is entered."""
    found = Load()
    with client_of(server) as client:
        threads = [threading.Thread(target=found.send, args=(client, model, number)) for number in range(_NUM_CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield found
        finally:
            found.is_over.set()
            for thread in threads:
                thread.join()


def test_a_replica_that_is_killed_before_serve_has_taken_it_over_is_replaced_all_the_same(server: ServerProcess) -> None:
    """The first test: the server has just become ready, and Ray is still starting."""
    (victim,) = replica_pids(server, "double")
    is_early = "replicas_handed_over" not in server.output
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: len(set(replica_pids(server, "double")) - {victim}) == 1, "another has joined")
    if is_early:
        assert "replicas_handed_over" not in server.output, "it was Serve that replaced it"


@pytest.mark.parametrize(
    ("model", "program", "num_replicas"),
    [("quadruple_by_pair", "double_pair", 2), ("quadruple", "double", 1), ("quadruple_either_way", "work", 1)],
)
def test_every_request_is_answered_correctly_while_replicas_are_killed(
    server: ServerProcess, model: str, program: str, num_replicas: int
) -> None:
    wait_until(lambda: len(replica_pids(server, program)) == num_replicas, "all its replicas are there")
    with load(server, model) as seen:
        for _ in range(2):
            seen.wait_for_answers(200)
            victim = replica_pids(server, program)[0]
            os.kill(victim, signal.SIGKILL)
            killed_s = time.monotonic()
            wait_until(lambda victim=victim: victim not in replica_pids(server, program), "it is dead")
            wait_until(lambda: len(replica_pids(server, program)) == num_replicas, "it has been replaced")
            print(f"\n{program}: replaced {time.monotonic() - killed_s:.1f} s after SIGKILL")
        seen.wait_for_answers(200)
    latencies_s = np.array(seen.latencies_s)
    p50_s, p99_s = np.percentile(latencies_s, [50, 99])
    print(f"{model}: {len(latencies_s)} answers, {len(seen.failures)} failures")
    print(f"p50 {p50_s:.4f} p99 {p99_s:.3f} max {latencies_s.max():.2f} s")
    assert seen.failures == []


def test_a_stopped_replica_is_replaced_and_every_request_is_answered(server: ServerProcess) -> None:
    """No connection closes: it just falls silent."""
    with load(server, "quadruple") as seen:
        seen.wait_for_answers(200)
        victim = replica_pids(server, "double")[0]
        os.kill(victim, signal.SIGSTOP)
        stopped_s = time.monotonic()
        wait_until(lambda: len(set(replica_pids(server, "double")) - {victim}) == 1, "another has joined")
        print(f"\nreplaced {time.monotonic() - stopped_s:.1f} s after SIGSTOP")
        seen.wait_for_answers(200)
    print(f"{len(seen.latencies_s)} answers, {len(seen.failures)} failures; max {max(seen.latencies_s):.2f} s")
    assert seen.failures == []


def _fork_servers(server: ServerProcess) -> list[psutil.Process]:
    processes = [psutil.Process(pid) for pid in server.pids()]
    forked = [process for process in processes if "dyorc.replica.fork_server" in process.cmdline()]
    return [process for process in forked if not process.name().startswith("dyorc-")]  # replicas have names of their own


def test_a_fork_server_that_is_killed_takes_no_replica_along_and_another_forks_the_next(server: ServerProcess) -> None:
    server.wait_for("replicas_handed_over")
    with load(server, "quadruple") as seen:
        seen.wait_for_answers(200)
        # One that was forked ahead in vain, since Serve's replica had forked its own, is let go after a while.
        wait_until(lambda: len(replica_pids(server, "double")) == 1, "there is one")
        (victim,) = replica_pids(server, "double")
        (fork_server,) = _fork_servers(server)
        fork_server.kill()
        seen.wait_for_answers(200)
        assert replica_pids(server, "double") == [victim]
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len(set(replica_pids(server, "double")) - {victim}) == 1, "another has joined")
        assert fork_server.pid not in {process.pid for process in _fork_servers(server)}
        seen.wait_for_answers(200)
    assert seen.failures == []


def test_nothing_but_what_the_next_server_removes_remains_when_the_server_itself_is_killed(server: ServerProcess) -> None:
    num_processes = len(server.pids())
    server.process.kill()
    killed_s = time.monotonic()
    wait_until(lambda: not server.pids(), "Ray's processes end with it")
    print(f"\n{num_processes} processes were gone {time.monotonic() - killed_s:.1f} s after SIGKILL")
    left = server.leftovers()
    print(f"left behind: {left}")
    others = [thing for thing in left if not thing.startswith(f"shared memory {server.arena_folder}")]
    # The fork server removes the server's folder, unless Ray has killed it, too. The next server does the same as here.
    for thing in others:
        clear_up(thing.removeprefix("file "))
    assert [thing for thing in others if os.path.exists(thing.removeprefix("file "))] == []
    sweep(str(server.arena_folder))
    assert list(server.arena_folder.iterdir()) == []
