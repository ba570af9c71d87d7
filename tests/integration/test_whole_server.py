"""The simulation of the whole server (`tests/whole_server`): a seed holds what is promised and repeats byte for byte."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.whole_server import command
from tests.whole_server.network import Network
from tests.whole_server.observed import Observed
from tests.whole_server.patches import VirtualLock
from tests.whole_server.virtual_redis import encoded
from tests.whole_server.world import World

_REPOSITORY = Path(__file__).parents[2]
_COMMAND = [sys.executable, "-m", "tests.whole_server"]


def test_a_seed_holds_and_repeats_byte_for_byte() -> None:
    running = [
        subprocess.Popen([*_COMMAND, "--seed", "7"], cwd=_REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    (first, complaints), (second, _) = (process.communicate() for process in running)
    assert [process.returncode for process in running] == [0, 0], complaints
    assert len(first.splitlines()) > 100
    assert first == second
    assert json.loads(first.splitlines()[-1])["wrong"] == []


@pytest.mark.real
def test_a_mistake_made_on_purpose_is_noticed() -> None:
    options = ["--seed", "3", "--mutant", "taken_lease"]
    ran = subprocess.run(
        [*_COMMAND, *options], cwd=_REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert ran.returncode == 1
    *_, repeat, last = ran.stdout.splitlines()
    assert any("got the lease" in text for text in json.loads(last)["wrong"])
    assert repeat == f"repeat it: python -m tests.whole_server {' '.join(options)}"


def test_a_seed_that_breaks_off_says_so_in_its_last_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = {"seed": 5, "wrong": ["the child ended with status 9"], "processor_s": 1.0}
    monkeypatch.setattr(command, "results", lambda seeds, number, path, mutant: [broken])  # pyright: ignore[reportUnknownLambdaType]
    assert command._run_one(5, "") == 1  # pyright: ignore[reportPrivateUsage]
    repeat, last = capsys.readouterr().out.splitlines()
    assert repeat == "repeat it: python -m tests.whole_server --seed 5"
    assert json.loads(last) == {"seed": 5, "wrong": broken["wrong"]}


def test_a_lock_is_released_when_the_process_that_holds_it_dies() -> None:
    world, lock = World(1, lambda line: None), VirtualLock()

    def hold() -> None:
        lock.acquire()
        world.park()

    def wait() -> None:
        lock.acquire()
        world.end()

    def start_waiting() -> None:
        world.start_process("waiting", wait)

    holder = world.start_process("holder", hold)
    world.call_later(1.0, start_waiting)
    world.call_later(2.0, lambda: world.kill(holder))
    assert world.run(10.0)


class _Loop:
    """An event loop that calls at once."""

    def call_soon_threadsafe(self, call: Callable[..., object], *values: object) -> None:
        call(*values)


def test_what_a_stalled_end_was_sent_arrives_in_order_once_it_is_released() -> None:
    world, loop = World(1, lambda line: None), cast(Any, _Loop())
    network, received = Network(world), list[object]()
    receiver = world.start_process("receiver", world.park)

    def send() -> None:
        near, far = network.pair(loop, loop, receiver)
        far.deliver, far.ended = received.append, received.append
        network.stall(far)
        near.send("first")
        near.send("second")
        near.close("it hung up")
        world.call_later(1.0, lambda: received.append("released"))
        world.call_later(1.0, lambda: network.release(far))
        world.call_later(2.0, world.end)
        world.park()

    world.start_process("sender", send)
    assert world.run(10.0)
    assert received == ["released", "first", "second", "it hung up"]


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("text", [b"x" * 9, b"x" * 65_533, b"x" * 65_534, "\u2026" * 65_000])
def test_a_long_reply_of_redis_is_read(text: bytes | str, protocol: int) -> None:
    async def read() -> tuple[bytes, bytes]:
        reader = asyncio.StreamReader()  # with the limit of lines that redis-py has
        reader.feed_data(encoded(text, protocol))
        reader.feed_eof()
        return await reader.readline(), await reader.read()

    line, rest = asyncio.run(read())
    data = text.encode() if isinstance(text, str) else text
    is_line = len(data) <= 65_533
    assert (line, rest) == ((b"+%s\r\n" % data, b"") if is_line else (b"$%d\r\n" % len(data), b"%s\r\n" % data))


def test_a_lease_that_was_over_while_the_clock_was_ahead_may_be_given_away() -> None:
    observed = Observed(World(1, lambda _line: None))
    observed.note_acquired("leader", "a", 1, 1.0, 100.0)
    observed.note_time(100.9)
    observed.note_acquired("leader", "b", 2, 1.0, 100.9)
    assert observed.wrong == ["b got the lease leader with fence 2 while a held it"]
    observed.note_time(120.0)
    observed.note_acquired("leader", "c", 3, 1.0, 101.0)
    assert len(observed.wrong) == 1
