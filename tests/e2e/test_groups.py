"""A group of programs that share a process, in a real server: it scales, and it is updated, while chains run in it."""

import contextlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest

import dyorc
from dyorc.errors import InvalidInputError
from dyorc.testing import ServerProcess, serving
from tests.deadlines import TIMEOUT_S, wait_until
from tests.leaks import no_leaks

NUM_CLIENTS, NUM_TURNS = 8, 100
_RELAYS = {"numbers", "doubled"}
_APP = """
import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
from jaxtyping import Int

import dyorc

Numbers, Number = Int[np.ndarray, "batch"], Int[np.ndarray, ""]


SCALING = {"min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 4, "downscale_delay_s": 0.5}


@dyorc.program(group="tallies", autoscaling_config=SCALING)
def begin(number: Numbers) -> dyorc.Resident[tuple]:
    return [(os.getpid(), int(each)) for each in number]


@dyorc.program(group="tallies")
def add(number: Numbers, tally: dyorc.Resident[tuple]) -> tuple[Numbers, Numbers, dyorc.Resident[tuple]]:
    assert all(pid == os.getpid() for pid, _ in tally)
    tallies = [(pid, total + STEP * int(each)) for (pid, total), each in zip(tally, number, strict=True)]
    pids, totals = zip(*tallies, strict=True)
    return np.array(totals), np.array(pids), tallies


@dyorc.workflow
async def count(number: Number, num_turns: int) -> tuple[Number, Number]:
    tally, total = begin(number), number
    for _ in range(num_turns):
        total, pid, tally = add(number, tally)
    return total, pid


def note(text: str) -> None:
    with Path(__file__).with_name("notes").open("a") as file:
        print(os.getpid(), id(asyncio.get_running_loop()), text, file=file)


@dyorc.program(batched=False, group="relays")
async def numbers(first: Number, num_parts: int) -> AsyncIterator[Number]:
    note(f"numbers {first} begins")
    try:
        for at in range(num_parts):
            await asyncio.sleep(0.002)
            yield first + at
    finally:
        note(f"numbers {first} ends")


@dyorc.program(batched=False, group="relays")
async def doubled(parts: AsyncIterator[Number]) -> AsyncIterator[Number]:
    note("doubled begins")
    try:
        async for part in parts:
            yield 2 * part
    finally:
        note("doubled ends")


@dyorc.workflow
async def relay(first: Number, num_parts: int) -> AsyncIterator[Number]:
    async for part in doubled(numbers(first, num_parts)):
        yield part
"""


class App:
    """The file of a workflow that changes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "tallying.py"
        self.target, self.relay = f"{self._path}:count", f"{self._path}:relay"
        self.write(1)

    def write(self, step: int) -> None:
        """Writes a version that counts in steps of this size."""
        self._path.write_text(_APP.replace("STEP", str(step)))

    def notes(self) -> list[list[str]]:
        """Returns what programs have noted: their process, their loop, their name, what they said."""
        notes = self._path.with_name("notes")
        return [line.split(maxsplit=2) for line in notes.read_text().splitlines()] if notes.exists() else []


@pytest.fixture(scope="module", params=["in_process", pytest.param("on_ray", marks=pytest.mark.ray)])
def is_on_ray(request: pytest.FixtureRequest) -> bool:
    return request.param == "on_ray"


@pytest.fixture(scope="module")
def app(is_on_ray: bool, tmp_path_factory: pytest.TempPathFactory) -> App:
    return App(tmp_path_factory.mktemp("on_ray" if is_on_ray else "in_process"))


@pytest.fixture(scope="module")
def server(is_on_ray: bool, app: App) -> Iterator[ServerProcess]:
    options, settings = ("--verbose",), {"DYORC_SCALING__INTERVAL_S": "0.1"}
    with (
        no_leaks(),
        serving(
            app.target, app.relay, *options, in_process=not is_on_ray, environment=settings, timeout_s=600
        ) as running,
    ):  # fmt: skip
        yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[dyorc.Client]:
    with dyorc.Client(server.url, timeout_s=TIMEOUT_S) as found:
        yield found


def count(client: dyorc.Client, number: int, num_turns: int = NUM_TURNS) -> tuple[int, int]:
    """Returns the sum, and the process in which it was counted."""
    total, pid = client.infer("count", number=np.array(number), num_turns=num_turns).values()
    return int(total), int(pid)


def replicas(client: dyorc.Client, program: str) -> dict[str, int]:
    """Returns the replicas that take batches, with their processes."""
    found = client.status()["programs"][program]["replicas"]
    return {name: replica["pid"] for name, replica in found.items() if replica["state"] == "ready"}


def are_together(client: dyorc.Client) -> bool:
    """Returns whether the replicas of both programs are in the same processes."""
    return sorted(replicas(client, "begin").values()) == sorted(replicas(client, "add").values())


def in_parallel(pool: ThreadPoolExecutor, client: dyorc.Client) -> list[Future[tuple[int, int]]]:
    return [pool.submit(count, client, number) for number in range(NUM_CLIENTS)]


def test_a_group_grows_with_the_load_of_all_its_programs_and_shrinks(is_on_ray: bool, client: dyorc.Client) -> None:
    """Only `begin` says how many there may be."""
    if not is_on_ray:
        pytest.skip("a cell has one of each")
    programs = client.scaling()["programs"]
    assert [(programs[name]["min_warm"], programs[name]["max_replicas"]) for name in ("begin", "add")] == [(1, 2), (1, 2)]
    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        while len(replicas(client, "begin")) < 2 or len(replicas(client, "add")) < 2:
            totals = [each.result()[0] for each in in_parallel(pool, client)]
            assert totals == [number * (NUM_TURNS + 1) for number in range(NUM_CLIENTS)]
    wait_until(lambda: are_together(client), "in the same processes")
    wait_until(lambda: len(replicas(client, "begin")) == len(replicas(client, "add")) == 1, "one is parked")
    assert list(replicas(client, "begin").values()) == list(replicas(client, "add").values())


def test_a_group_is_scaled_by_hand_as_one_and_no_chain_ends(is_on_ray: bool, client: dyorc.Client) -> None:
    if not is_on_ray:
        with pytest.raises(InvalidInputError, match="it runs in the server's own process"):
            client.scale("add", num_warm=2)
        return
    client.scale("add", num_warm=2)
    wait_until(lambda: len(replicas(client, "begin")) == len(replicas(client, "add")) == 2, "both programs have two replicas")
    wait_until(lambda: are_together(client), "in the same processes")
    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        while len({pid for _, pid in [each.result() for each in in_parallel(pool, client)]}) < 2:
            pass  # until chains have run in both
        futures = in_parallel(pool, client)
        client.scale("begin", num_warm=1)
        wait_until(lambda: len(replicas(client, "begin")) == len(replicas(client, "add")) == 1, "one process is left")
        assert [each.result()[0] for each in futures] == [number * (NUM_TURNS + 1) for number in range(NUM_CLIENTS)]
    assert list(replicas(client, "begin").values()) == list(replicas(client, "add").values())


def test_a_new_version_of_a_group_runs_beside_the_old_one_which_ends_its_chains(
    is_on_ray: bool, client: dyorc.Client, app: App
) -> None:
    before = set(replicas(client, "add").values())
    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        futures = in_parallel(pool, client)
        app.write(2)
        assert client.deploy(app.target)["default"] == "2"
        assert count(client, 1)[0] == 1 + 2 * NUM_TURNS, "from now on, requests get the new version"
        totals = [each.result()[0] for each in futures]
        assert all(total in (number * (NUM_TURNS + 1), number * (2 * NUM_TURNS + 1)) for number, total in enumerate(totals))
    wait_until(lambda: set(client.status()["programs"]) - _RELAYS == {"begin@2", "add@2"}, "the old version has left")
    assert sorted(replicas(client, "begin@2").values()) == sorted(replicas(client, "add@2").values())
    if is_on_ray:
        wait_until(lambda: not any(map(psutil.pid_exists, before)), "the processes of the old version have ended")
    assert client.rollback("count")["default"] == "1"
    assert count(client, 1)[0] == 1 + NUM_TURNS
    wait_until(lambda: set(client.status()["programs"]) - _RELAYS == {"begin", "add"}, "the new version has left")


def relayed(client: dyorc.Client, first: int, num_parts: int) -> Iterator[int]:
    for part in client.stream("relay", first=np.array(first), num_parts=num_parts):
        yield int(np.asarray(part))


def test_a_program_that_yields_feeds_another_of_its_group_on_one_loop(client: dyorc.Client, app: App) -> None:
    assert list(relayed(client, 1, 100)) == [2 * (1 + at) for at in range(100)]
    (place,) = {(pid, loop) for pid, loop, _ in app.notes()}
    assert sorted(note for *_, note in app.notes()) == ["doubled begins", "doubled ends", "numbers 1 begins", "numbers 1 ends"]
    assert int(place[0]) in replicas(client, "numbers").values()
    assert int(place[0]) in replicas(client, "doubled").values()


def test_a_stream_of_a_group_is_cancelled_in_the_middle_and_others_go_on(client: dyorc.Client, app: App) -> None:
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: list(relayed(client, 1000, 300)))
        stream = relayed(client, 2, 1_000_000)
        assert [next(stream) for _ in range(20)] == [2 * (2 + at) for at in range(20)]
        num_ended = [note for *_, note in app.notes()].count("doubled ends")
        stream.close()
        wait_until(lambda: "numbers 2 ends" in [note for *_, note in app.notes()], "the first program was closed")
        wait_until(lambda: [note for *_, note in app.notes()].count("doubled ends") > num_ended, "the second was, too")
        assert other.result() == [2 * (1000 + at) for at in range(300)]
    assert list(relayed(client, 3, 10)) == [2 * (3 + at) for at in range(10)], "their loop goes on"


def test_a_stream_of_a_group_outlives_the_process_of_both_of_its_programs(
    is_on_ray: bool, client: dyorc.Client, app: App
) -> None:
    if not is_on_ray:
        pytest.skip("a cell is the process of the server")
    found: list[int] = []
    for part in relayed(client, 4, 200):
        found.append(part)
        if len(found) == 20:
            (pid,) = replicas(client, "numbers").values()
            os.kill(pid, signal.SIGKILL)
    assert found == [2 * (4 + at) for at in range(200)]
    assert len({pid for pid, _, note in app.notes() if note == "numbers 4 begins"}) == 2


def test_a_killed_replica_of_serve_leaves_its_process_to_the_next(
    is_on_ray: bool, server: ServerProcess, client: dyorc.Client
) -> None:
    if not is_on_ray:
        pytest.skip("Serve has none")
    wait_until(lambda: serve_replicas(server, "add"), "Serve has its replica")
    server.wait_for("replicas_handed_over", TIMEOUT_S)
    before, victims = replicas(client, "add"), serve_replicas(server, "add")
    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        futures = in_parallel(pool, client)
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        wait_until(lambda: serve_replicas(server, "add") and not serve_replicas(server, "add") & victims, "Serve has another")
        assert [each.result()[0] for each in futures] == [number * (NUM_TURNS + 1) for number in range(NUM_CLIENTS)]
    after = replicas(client, "add")  # with one that was forked ahead in vain, for a while
    assert after.items() >= before.items(), f"no process was lost: {before} became {after}"


def serve_replicas(server: ServerProcess, program: str) -> set[int]:
    """Returns the processes of Ray that keep those of a program."""
    found: set[int] = set()
    for pid in server.pids():
        with contextlib.suppress(psutil.Error):
            if " ".join(psutil.Process(pid).cmdline()).startswith(f"ray::ServeReplica:{program}:"):
                found.add(pid)
    return found
