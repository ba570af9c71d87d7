"""Processes forked from a node's fork server: what they are like, who keeps them alive, and what is left when nobody does."""

import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dyorc.config import LinkConfig, TransportConfig
from dyorc.errors import TransportError
from dyorc.replica.assignment import ForkServerSpec, Hosting, Identity, ProgramSource, ReplicaAssignment, Uplink
from dyorc.replica.fork_client import ForkClient, ReplicaHandle
from dyorc.replica.fork_folder import replica_paths
from dyorc.replica.replica_monitor import ReplicaMonitor
from tests.deadlines import TIMEOUT_S, wait_until
from tests.integration.fork_processes import fork_processes
from tests.server_process import target

_WORKFLOWS = Path(__file__).parents[1] / "workflows"


@pytest.fixture
def folder() -> Iterator[str]:
    """A folder with a short path, as sockets need."""
    found = tempfile.mkdtemp(prefix="t-", dir="/tmp")
    yield found
    wait_until(lambda: not fork_processes(found), "all processes have ended")
    shutil.rmtree(found)


@pytest.fixture
def client(folder: str) -> Iterator[ForkClient]:
    found = ForkClient(ForkServerSpec(folder=f"{folder}/forks"))
    yield found
    found.close(TIMEOUT_S)


def _fork_server(folder: str) -> psutil.Process:
    return min(fork_processes(folder), key=lambda process: process.create_time())


def _assignment(folder: str, **environment: str) -> ReplicaAssignment:
    return ReplicaAssignment(
        source=ProgramSource(folder=folder, target=target("probe", "probe"), program="probe"),
        identity=Identity(replica_id="probe#1", program="probe", node="here"),
        uplink=Uplink(address=f"unix://{folder}/link", link=LinkConfig(), transport=TransportConfig(arena_folder=folder)),
        num_threads=3,
        graceful_s=1.0,
        environment={"FACTS_FOLDER": folder, **environment},
    )


def _hosting(folder: str) -> Hosting:
    place = ForkServerSpec(folder=f"{folder}/forks")
    return Hosting(
        place=place, num_threads=1, environment={}, graceful_s=1.0, ping_s=0.1, answer_timeout_s=TIMEOUT_S, stopped_timeout_s=0.3
    )


def _facts(folder: str, pid: int) -> dict[str, Any]:
    """Returns what a replica's process has written down."""
    path = Path(folder, f"{pid}.json")
    wait_until(path.exists, f"process {pid} has imported the program")
    return json.loads(path.read_text())


def _pid(holder: ReplicaHandle) -> int:
    return holder.process.pid


def test_a_forked_replica_is_a_process_of_its_own(folder: str, client: ForkClient) -> None:
    with contextlib.closing(client.fork(_assignment(folder, COLOUR="red"), is_adopted=True)) as holder:
        facts = _facts(folder, _pid(holder))
        assert facts["session"] == facts["pid"] != os.getsid(0)
        assert facts["name"] == "dyorc-probe"
        assert facts["folder"] == folder
        assert facts["num_threads"] == [3, 3]
        assert facts["colour"] == "red"
        assert facts["sums"] == [300**3, 300**3]
        assert not facts["has_cuda"]
        server = _fork_server(folder)
        assert server.num_threads() == 1
        inherited = {file.path for file in server.open_files()} | {
            connection.laddr for connection in server.net_connections("unix")
        }
        assert f"{folder}/forks/server" in inherited
        replica = psutil.Process(facts["pid"])
        assert f"{folder}/forks/server" not in {connection.laddr for connection in replica.net_connections("unix")}
        assert replica.ppid() == server.pid
        with contextlib.closing(client.fork(_assignment(folder, COLOUR="blue"), is_adopted=True)) as other:
            others = _facts(folder, _pid(other))
    assert others["colour"] == "blue"
    assert not set(facts["draws"]) & set(others["draws"])


def test_a_replica_lives_as_long_as_somebody_holds_it_and_one_adopts_it(folder: str, client: ForkClient) -> None:
    assignment = _assignment(folder)
    ahead = client.fork(assignment, is_adopted=False)
    process = psutil.Process(_pid(ahead))
    assert client.adopt("another program") is None
    adopted = client.adopt(assignment.key)
    assert adopted is not None
    assert _pid(adopted) == process.pid
    message = ahead.line.receive(TIMEOUT_S)
    assert message is not None
    assert message["kind"] == "taken"
    assert client.adopt(assignment.key) is None
    ahead.close()
    adopted.line.send("ping")
    assert adopted.line.receive(TIMEOUT_S) == {"kind": "pong", "error": ""}
    assert process.is_running()
    adopted.close()
    process.wait(TIMEOUT_S)
    assert replica_paths(client.folder) == []


def test_a_replica_outlives_its_fork_server_and_another_is_started_when_needed(folder: str, client: ForkClient) -> None:
    with contextlib.closing(client.fork(_assignment(folder), is_adopted=True)) as first:
        server = _fork_server(folder)
        server.kill()
        wait_until(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE, "it is dead")
        with contextlib.closing(client.fork(_assignment(folder), is_adopted=True)) as second:
            for holder in (first, second):
                holder.line.send("ping")
                assert holder.line.receive(TIMEOUT_S) == {"kind": "pong", "error": ""}


def test_a_stopped_replica_is_killed_with_the_fork_server_that_nobody_needs(folder: str, client: ForkClient) -> None:
    holder = client.fork(_assignment(folder), is_adopted=True)
    process = psutil.Process(_pid(holder))
    process.suspend()
    holder.close()
    client.close(TIMEOUT_S)
    wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, "it is dead")
    assert not Path(client.folder).exists()


def test_libraries_that_start_threads_are_not_imported_ahead(
    folder: str, client: ForkClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (
        ("quiet", "import sys; print('quiet is here', file=sys.stderr)"),
        ("lively", "import threading, time; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()"),
    ):
        Path(folder, f"{name}_library.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", folder)
    client.preload(["lively_library", "quiet_library"])
    client.fork(_assignment(folder), is_adopted=True).close()
    assert _fork_server(folder).num_threads() == 1
    assert "quiet is here" in Path(client.folder, "log").read_text()


def test_a_changed_environment_takes_another_fork_server(
    folder: str, client: ForkClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.open()
    monkeypatch.setenv("COLOUR", "green")
    client.preload([])
    with contextlib.closing(client.fork(_assignment(folder), is_adopted=True)) as holder:
        assert _facts(folder, _pid(holder))["colour"] == "green"


def test_the_folder_must_be_closed_to_others(folder: str, client: ForkClient) -> None:
    Path(client.folder).mkdir()
    Path(client.folder).chmod(0o755)
    with pytest.raises(TransportError, match="other users can enter"):
        client.open()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_keeper_replaces_a_process_that_is_killed_or_stopped(folder: str, client: ForkClient, number: int) -> None:
    client.open()
    place = ForkServerSpec(folder=client.folder)
    keeper = ReplicaMonitor(ForkClient(place), _assignment(folder), _hosting(folder))
    keeper.start()
    try:
        wait_until(lambda: len(list(Path(folder).glob("*.json"))) == 1, "there is one")
        (first,) = (int(path.stem) for path in Path(folder).glob("*.json"))
        os.kill(first, number)
        wait_until(lambda: len(list(Path(folder).glob("*.json"))) == 2, "there is another")
        keeper.check()
    finally:
        keeper.stop()
    assert not [process for process in fork_processes(folder) if process.pid != _fork_server(folder).pid]


def test_a_keeper_that_stood_still_itself_does_not_take_its_process_for_hung(
    folder: str, client: ForkClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock()
    monkeypatch.setattr("dyorc.replica.replica_monitor.time", clock)
    client.open()
    place = ForkServerSpec(folder=client.folder)
    keeper = ReplicaMonitor(ForkClient(place), _assignment(folder), _hosting(folder))
    keeper.start()
    try:
        wait_until(lambda: len(list(Path(folder).glob("*.json"))) == 1, "there is one")
        for _ in range(3):
            clock.ahead_s += 10 * TIMEOUT_S
            looked = clock.num_asked
            wait_until(lambda looked=looked: clock.num_asked > looked + 3, "the keeper has looked again")
        keeper.check()
        assert len(list(Path(folder).glob("*.json"))) == 1, "the process has not been replaced"
    finally:
        keeper.stop()


class _Clock:
    """A clock that can be put forward, as it is for a process that was stopped.

    Attributes:
        num_asked: How often the time was asked for.
    """

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self.num_asked = 0

    def monotonic(self) -> float:
        self.num_asked += 1
        return time.monotonic() + self.ahead_s


def test_a_keeper_that_cannot_keep_a_process_says_why(folder: str, client: ForkClient) -> None:
    client.open()
    keeper = ReplicaMonitor(
        ForkClient(ForkServerSpec(folder=client.folder)), _assignment(folder, COLOUR="none"), _hosting(folder)
    )
    keeper.start()
    try:
        with pytest.raises(RuntimeError, match=r"'probe' cannot be kept running: .*it has no colour"):
            wait_until(lambda: keeper.check() or False, "it raises")
    finally:
        keeper.stop()


def test_a_fork_server_keeps_nothing_of_clients_that_are_gone(folder: str, client: ForkClient) -> None:
    """Each Serve replica is a client: over a thousand of them would take all descriptors that a process may have."""
    client.open()
    _come_and_go(folder, 1)
    before = _fork_server(folder).num_fds()
    _come_and_go(folder, 8)
    assert _fork_server(folder).num_fds() <= before + 1, "the last one that left may still be there"


def _come_and_go(folder: str, number: int) -> None:
    for _ in range(number):
        passer = ForkClient(ForkServerSpec(folder=f"{folder}/forks"))
        passer.fork(_assignment(folder), is_adopted=True).end(TIMEOUT_S)
        passer.close()
