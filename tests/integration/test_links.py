"""What both links promise, the Unix socket and ZeroMQ, and what only one does. Peers are threads or processes of their own."""

import asyncio
import contextlib
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pytest
import uvloop

from dyorc.config import LinkConfig
from dyorc.errors import TransportError
from dyorc.transport.codec import Frame
from dyorc.transport.endings import Ending
from dyorc.transport.link import OrchestratorEnd, dial, listen
from dyorc.transport.unix_framing import MAX_FRAMES, MAX_MESSAGE_BYTES, pack
from tests.deadlines import TIMEOUT_S, wait_until, wait_until_async
from tests.integration.numbered import first_wrong, numbered
from tests.integration.stack import num_descriptors

_REPOSITORY = Path(__file__).parents[2]
_CONFIG = LinkConfig()
_DEAF = LinkConfig(heartbeat_interval_s=2 * TIMEOUT_S, heartbeat_timeout_s=6 * TIMEOUT_S)
"""With it, what is noticed at all is not noticed by its silence."""
_FOREVER_S = 2 * TIMEOUT_S
"""Whoever waits for so long fails the test."""


@pytest.fixture(scope="module", params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """The server runs on uvloop, tests and embedders may not."""
    uvloop.new_event_loop().close()  # what it makes once and keeps is no leak
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
def folder() -> Iterator[str]:
    """For sockets."""
    with tempfile.TemporaryDirectory(prefix="dyorc-test-") as found:
        yield found


@pytest.fixture(params=["unix", "ipc"])
def address(request: pytest.FixtureRequest, folder: str) -> str:
    """One of each link."""
    return f"{request.param}://{folder}/link"


@pytest.fixture
def unix_address(folder: str) -> str:
    """For what only the Unix socket does."""
    return f"unix://{folder}/link"


class Hub:
    """The orchestrator's end, and what came to it."""

    def __init__(self, address: str, config: LinkConfig = _CONFIG) -> None:
        self.heard: list[tuple[bytes, list[bytes]]] = []
        self.lost: list[bytes] = []
        self.endings: dict[bytes, Ending] = {}
        self.happened: list[str] = []
        self.link: OrchestratorEnd = listen(address, config, self._received, lambda: self.happened.append("drained"), self._lost)

    async def __aenter__(self) -> Self:
        await self.link.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.link.__aexit__(kind, error, trace)

    def _received(self, peer: bytes, frames: Sequence[Frame]) -> None:
        self.heard.append((peer, [bytes(frame) for frame in frames]))
        self.happened.append("received")

    def _lost(self, peer: bytes, ending: Ending) -> None:
        self.lost.append(peer)
        self.endings[peer] = ending
        self.happened.append("lost")

    def said(self, peer: bytes, word: bytes) -> list[list[bytes]]:
        """What a peer has said that begins with a word."""
        return [frames for one, frames in self.heard if one == peer and frames[0] == word]

    def peers_of(self, pid: int) -> list[bytes]:
        """Who has said hello as a process, in order."""
        return list(dict.fromkeys(peer for peer, frames in self.heard if frames == [b"hello", str(pid).encode()]))

    async def meet(self, process: "subprocess.Popen[bytes]") -> bytes:
        """The connection of a process that is not lost, once there is one."""
        await wait_until_async(lambda: set(self.peers_of(process.pid)) - set(self.lost), "it says hello")
        return next(peer for peer in reversed(self.peers_of(process.pid)) if peer not in self.lost)

    async def ask(self, peer: bytes, *frames: Frame, answer: bytes) -> list[bytes]:
        """Says something and gives the first answer of that kind that comes then."""
        num_before = len(self.said(peer, answer))
        assert self.link.send(peer, frames)
        await wait_until_async(lambda: len(self.said(peer, answer)) > num_before, f"the answer to {bytes(frames[0])!r}")
        return self.said(peer, answer)[num_before]


@contextlib.contextmanager
def processes(address: str, num: int, receive_timeout_s: float = 0.2) -> Generator[list["subprocess.Popen[bytes]"]]:
    """Peers; `tests.integration.link_process` says what they do."""
    command = [sys.executable, "-m", "tests.integration.link_process", address, str(receive_timeout_s)]
    found = [subprocess.Popen(command, stdin=subprocess.PIPE, cwd=_REPOSITORY) for _ in range(num)]
    try:
        yield found
    finally:
        for process in found:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()


def wake(process: "subprocess.Popen[bytes]") -> None:
    """A line on its standard input."""
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


async def test_a_thousand_messages_both_ways_at_once_come_whole_and_in_order(address: str) -> None:
    num = 1000
    with processes(address, 1, 30.0) as (process,):
        async with Hub(address) as hub:
            peer = await hub.meet(process)
            assert hub.link.send(peer, [b"exchange", str(num).encode()])
            for at in range(num):
                assert hub.link.send(peer, numbered(at))
                if at % 10 == 0:
                    await asyncio.sleep(0)
            await wait_until_async(lambda: hub.said(peer, b"checked"), "it has read all")
            assert hub.said(peer, b"checked") == [[b"checked", b""]]
            found = [frames for _, frames in hub.heard if frames[0] not in (b"hello", b"checked")]
            assert len(found) == num
            assert first_wrong(found) == ""
            sent = sum(len(frame) for at in range(num) for frame in numbered(at))
            assert hub.link.num_bytes_received > sent
            assert hub.link.num_bytes_sent > sent


@pytest.mark.parametrize("num_frames", [1, 2, 1023, 1024, 1025, 5000])
async def test_empty_frames_and_any_number_of_them_arrive(address: str, num_frames: int) -> None:
    frames = [bytes([at % 256]) * (at * at % 37) for at in range(num_frames)]
    with processes(address, 1, 30.0) as (process,):
        async with Hub(address) as hub:
            peer = await hub.meet(process)
            assert await hub.ask(peer, b"echo", *frames, answer=b"echo") == [b"echo", *frames]
            large = [bytes(3_000_001), b"", *frames, b"x" * 500_000]
            assert await hub.ask(peer, b"echo", *large, answer=b"echo") == [b"echo", *large]


async def test_what_was_sent_before_the_link_was_closed_arrives(address: str) -> None:
    with processes(address, 1) as (process,):
        async with Hub(address) as hub:
            peer = await hub.meet(process)
            assert hub.link.send(peer, [b"speak", b"500"])
            assert hub.link.send(peer, [b"echo", b"never read"])
            await wait_until_async(lambda: hub.lost, "its end is noticed")
            assert hub.said(peer, b"word") == [[b"word", str(at).encode()] for at in range(500)]
            assert hub.lost == [peer]
            assert not hub.link.send(peer, [b"echo"])


async def test_the_last_words_of_a_peer_that_is_killed_are_heard_first(unix_address: str) -> None:
    with processes(unix_address, 1) as (process,):
        async with Hub(unix_address, _DEAF) as hub:
            peer = await hub.meet(process)
            assert hub.link.send(peer, [b"die", b"500"])
            await wait_until_async(lambda: hub.lost, "its end is noticed")
            assert len(hub.said(peer, b"word")) == 500
            assert hub.lost == [peer]


async def test_last_words_count_even_if_one_was_just_about_to_answer(unix_address: str) -> None:
    """Writing to a connection whose end has not been noticed yet does not hide what lies in it."""
    async with Hub(unix_address) as hub:
        dealer = dial(unix_address, _CONFIG, 1.0)
        dealer.send([b"hello"])
        await wait_until_async(lambda: hub.heard, "it is heard")
        peer = hub.heard[0][0]
        dealer.send([b"word"])
        dealer.close()
        assert hub.link.send(peer, [b"too late"])
        assert hub.link.send(peer, [b"too late, again"])
        await wait_until_async(lambda: hub.lost, "its end is noticed")
        assert hub.said(peer, b"word") == [[b"word"]]


async def test_a_killed_peer_is_noticed_at_once(address: str) -> None:
    with processes(address, 2) as (first, second):
        async with Hub(address, _DEAF) as hub:
            peer, other = await hub.meet(first), await hub.meet(second)
            first.kill()
            await wait_until_async(lambda: hub.lost, "its end is noticed")
            assert hub.lost == [peer]
            assert await hub.ask(other, b"echo", b"here", answer=b"echo") == [b"echo", b"here"]


async def test_a_stopped_peer_is_noticed_and_welcome_when_it_goes_on(address: str) -> None:
    with processes(address, 2) as (first, second):
        async with Hub(address) as hub:
            peer, other = await hub.meet(first), await hub.meet(second)
            os.kill(first.pid, signal.SIGSTOP)
            stopped_s = time.monotonic()
            await wait_until_async(lambda: hub.lost, "it is given up")
            noticed_s = time.monotonic() - stopped_s
            print(f"\nnoticed after {noticed_s:.2f} s")
            assert noticed_s >= _CONFIG.heartbeat_timeout_s - _CONFIG.heartbeat_interval_s
            assert hub.lost == [peer]
            assert not hub.link.send(peer, [b"echo"])
            os.kill(first.pid, signal.SIGCONT)
            again = await hub.meet(first)
            assert again != peer or not address.startswith("unix")
            assert await hub.ask(again, b"echo", b"back", answer=b"echo") == [b"echo", b"back"]
            assert await hub.ask(other, b"echo", b"here", answer=b"echo") == [b"echo", b"here"]


async def test_a_peer_that_is_stopped_for_a_moment_keeps_its_connection(address: str) -> None:
    with processes(address, 1) as (process,):
        async with Hub(address, LinkConfig(heartbeat_timeout_s=TIMEOUT_S)) as hub:
            peer = await hub.meet(process)
            for _ in range(3):
                os.kill(process.pid, signal.SIGSTOP)
                await asyncio.sleep(2 * _CONFIG.heartbeat_interval_s)  # it is looked at meanwhile
                os.kill(process.pid, signal.SIGCONT)
                assert await hub.ask(peer, b"echo", answer=b"echo") == [b"echo"]
            assert hub.lost == []


async def test_a_peer_whose_program_holds_the_interpreter_is_not_taken_for_dead(address: str) -> None:
    with processes(address, 1) as (process,):
        async with Hub(address) as hub:
            peer = await hub.meet(process)
            await hub.ask(peer, b"hold", b"2.5", answer=b"held")
            assert hub.lost == []


async def test_a_killed_peer_whose_child_holds_the_connection_is_noticed_all_the_same(address: str) -> None:
    with processes(address, 1) as (process,):
        async with Hub(address) as hub:
            peer = await hub.meet(process)
            assert hub.link.send(peer, [b"fork"])
            await asyncio.to_thread(process.wait)
            await wait_until_async(lambda: hub.lost, "its end is noticed")


async def test_the_next_orchestrator_at_the_same_address_is_told_who_is_there(address: str) -> None:
    with processes(address, 2) as found:  # they are there first
        for _ in range(3):
            async with Hub(address) as hub:
                for process in found:
                    peer = await hub.meet(process)
                    assert await hub.ask(peer, b"echo", b"new", answer=b"echo") == [b"echo", b"new"]


async def test_a_peer_tells_who_it_is_as_soon_as_it_has_dialled_again(unix_address: str) -> None:
    """However seldom it says so otherwise."""
    with processes(unix_address, 1, _FOREVER_S) as (process,):
        async with Hub(unix_address) as hub:
            peer = await hub.meet(process)
            used_s = float((await hub.ask(peer, b"cpu", answer=b"cpu"))[1])
        await asyncio.sleep(1.0)
        async with Hub(unix_address) as hub:
            peer = await hub.meet(process)
            used_s = float((await hub.ask(peer, b"cpu", answer=b"cpu"))[1]) - used_s
            assert used_s < 0.5, "it waited without spinning, which would have taken a second"


async def test_whoever_does_not_wait_is_told_at_once_that_there_is_nothing(unix_address: str) -> None:
    dealer = dial(unix_address, _CONFIG, _FOREVER_S)
    assert dealer.receive(is_waiting=False) is None
    dealer.close()


async def test_what_is_sent_while_nobody_is_there_is_dropped(unix_address: str) -> None:
    dealer = dial(unix_address, _CONFIG, 0.3)
    try:
        dealer.send([b"lost"])
        started_s = time.monotonic()
        assert dealer.receive() is None
        assert time.monotonic() - started_s >= 0.3
        async with Hub(unix_address) as hub:
            while not hub.heard:
                assert await asyncio.to_thread(dealer.receive) is None
                dealer.send([b"here"])
                await asyncio.sleep(0.05)
            assert hub.heard[0][1] == [b"here"]
        dealer.send([b"lost, too"])
        dealer.send([b"lost, too"])
        assert await asyncio.to_thread(dealer.receive) is None
    finally:
        dealer.close()


_PREAMBLE = struct.Struct("<4sIQ")
_WHOLE = b"".join(pack([b"hello", b"stranger"]))
_NONSENSE = [
    b"DyO2" + _WHOLE[4:],
    b"GET / HTTP/1.1\r\nHost: dyorc\r\n\r\n",
    bytes(100),
    b"\xff" * 70_000,
    _PREAMBLE.pack(b"DyO1", 0, 0),
    _PREAMBLE.pack(b"DyO1", 1, 2**63),
    _PREAMBLE.pack(b"DyO1", 1, MAX_MESSAGE_BYTES + 1),
    _PREAMBLE.pack(b"DyO1", MAX_FRAMES + 1, 2**30),
    _PREAMBLE.pack(b"DyO1", 1000, 16),
    _PREAMBLE.pack(b"DyO1", 1, 32) + struct.pack("<Q", 17).ljust(32, b"\0"),
    _PREAMBLE.pack(b"DyO1", 2, 32) + struct.pack("<QQ", 2**64 - 1, 1).ljust(32, b"\0"),
    _PREAMBLE.pack(b"DyO1", 1, 64) + struct.pack("<Q", 16).ljust(64, b"\0"),
]


@pytest.mark.parametrize("nonsense", _NONSENSE, ids=range(len(_NONSENSE)))
async def test_a_stranger_who_sends_nonsense_loses_its_connection_and_harms_nobody(address: str, nonsense: bytes) -> None:
    with processes(address, 1) as (process,):
        async with Hub(address) as hub:
            peer = await hub.meet(process)
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(address.partition("://")[2])
                stranger.sendall(nonsense)
                if address.startswith("unix"):
                    await asyncio.to_thread(_read_to_end, stranger)
                assert await hub.ask(peer, b"echo", b"here", answer=b"echo") == [b"echo", b"here"]
            assert hub.lost == []
            assert {one for one, _ in hub.heard} == {peer}


async def test_what_somebody_said_before_nonsense_is_heard(unix_address: str) -> None:
    async with Hub(unix_address) as hub:
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(unix_address.removeprefix("unix://"))
            for byte in _WHOLE:  # however it is cut up
                stranger.sendall(bytes([byte]))
                await asyncio.sleep(0)
            stranger.sendall(_WHOLE + _WHOLE[:-1] + b"\0" + b"nonsense" * 10)
            await asyncio.to_thread(_read_to_end, stranger)
        assert [frames for _, frames in hub.heard] == [[b"hello", b"stranger"]] * 3
        assert hub.lost == [hub.heard[0][0]]


async def test_an_orchestrator_that_sends_nonsense_is_dialled_again(unix_address: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(unix_address.removeprefix("unix://"))
        listener.listen()
        dealer = dial(unix_address, _CONFIG, 5.0)
        try:
            first, _ = listener.accept()
            first.sendall(_WHOLE + b"nonsense" * 2)
            assert list(map(bytes, dealer.receive() or [])) == [b"hello", b"stranger"]
            assert dealer.receive() is None
            second, _ = listener.accept()
            second.sendall(_WHOLE)
            assert list(map(bytes, dealer.receive() or [])) == [b"hello", b"stranger"]
            first.close()
            second.close()
        finally:
            dealer.close()


def _read_to_end(stranger: socket.socket) -> None:
    stranger.settimeout(TIMEOUT_S)
    with contextlib.suppress(ConnectionResetError):  # it may be closed before all was read
        while stranger.recv(4096):
            pass


async def test_a_slow_reader_gets_everything_in_order_and_holds_nobody_up(address: str) -> None:
    num, num_bytes = 300, 200_000
    with processes(address, 2, 30.0) as (slow, quick):
        async with Hub(address) as hub:
            peer, other = await hub.meet(slow), await hub.meet(quick)
            assert hub.link.send(peer, [b"sleep", str(num).encode()])
            buffers = [bytearray(num_bytes) for _ in range(2)]
            for at in range(num):
                number, check_sum, empty, first, second = numbered(at, num_bytes)
                parts = [memoryview(buffers[0])[: len(first)], memoryview(buffers[1])[: len(second)]]
                parts[0][:], parts[1][:] = first, second
                assert hub.link.send(peer, [number, check_sum, empty, *parts])
                for buffer in buffers:
                    buffer[:] = bytes(num_bytes)  # it belongs to us again
                if at == num - 10:
                    assert hub.said(peer, b"checked") == []
                    wake(slow)
                if at > num - 10:  # it reads while the loop has no turn: what is new must not overtake what waits
                    read_until_s = time.monotonic() + 0.03
                    wait_until(lambda read_until_s=read_until_s: time.monotonic() > read_until_s, "it reads")
                elif at % 50 == 0:
                    assert await hub.ask(other, b"echo", b"here", answer=b"echo") == [b"echo", b"here"]
            await wait_until_async(lambda: hub.said(peer, b"checked"), "it has read all")
            assert hub.said(peer, b"checked") == [[b"checked", b""]]
            assert await hub.ask(peer, b"echo", answer=b"echo") == [b"echo"]


async def test_a_slow_reader_that_dies_is_lost_with_what_waited_for_it(address: str) -> None:
    with processes(address, 1, 30.0) as (process,):
        async with Hub(address) as hub:
            peer = await hub.meet(process)
            assert hub.link.send(peer, [b"sleep", b"100"])
            for at in range(100):
                assert hub.link.send(peer, numbered(at, 200_000))
            process.kill()
            await wait_until_async(lambda: hub.lost, "its end is noticed")
            assert hub.lost == [peer]
            assert not hub.link.send(peer, [b"echo"])


async def test_the_end_of_a_burst_is_told_once(unix_address: str) -> None:
    async with Hub(unix_address) as hub:
        dealers = [dial(unix_address, _CONFIG, 1.0) for _ in range(3)]
        for dealer in dealers:
            dealer.send([b"hello"])
        await wait_until_async(lambda: len(hub.heard) == 3, "all are heard")
        hub.happened.clear()
        for _ in range(10):
            for dealer in dealers:
                dealer.send([b"word"])
        await wait_until_async(lambda: "drained" in hub.happened, "the end is reported")
        assert hub.happened == ["received"] * 30 + ["drained"]
        for dealer in dealers:
            dealer.close()
        await wait_until_async(lambda: len(hub.lost) == 3, "they are lost")
        assert hub.happened[31:] == ["lost"] * 3


async def test_messages_are_followed_by_the_news_that_there_are_no_more(address: str) -> None:
    with processes(address, 1, 30.0) as (process,):
        async with Hub(address) as hub:
            peer = await hub.meet(process)
            await hub.ask(peer, b"echo", answer=b"echo")
            await wait_until_async(lambda: hub.happened[-1] == "drained", "the end is reported")


async def test_connections_leave_no_descriptors_behind(address: str) -> None:
    async with Hub(address) as hub:
        await wait_until_async(lambda: True, "")
        num_before = num_descriptors()
        for at in range(30):
            dealer = dial(address, _CONFIG, 1.0)
            dealer.send([b"hello"])
            await wait_until_async(lambda at=at: len(hub.heard) > at, "it is heard")
            dealer.close()
            await wait_until_async(lambda at=at: len(hub.lost) > at, "it is lost")
        assert num_descriptors() <= num_before + 1


async def test_processes_that_are_gone_leave_no_descriptors_behind(unix_address: str) -> None:
    with processes(unix_address, 3) as found:
        async with Hub(unix_address) as hub:
            for process in found:
                await hub.meet(process)
            num_before = num_descriptors()
            for process in found:
                process.kill()
            await wait_until_async(lambda: len(hub.lost) == 3, "they are lost")
            assert num_descriptors() == num_before - 3 * 3, "a connection, and the file and the pidfd of a process each"
            assert {ending.reason for ending in hub.endings.values()} == {"its process was killed by signal 9, SIGKILL"}


async def test_received_frames_are_the_receivers_own_and_aligned(unix_address: str) -> None:
    kept: list[Frame] = []
    link = listen(unix_address, _CONFIG, lambda _, frames: kept.extend(frames), lambda: None, lambda *_: None)
    async with link:
        dealer = dial(unix_address, _CONFIG, 1.0)
        sent = [bytes([at]) * (1 + at * 700) for at in range(100)]
        for at in range(0, 100, 4):
            await asyncio.to_thread(dealer.send, sent[at : at + 4])
        await wait_until_async(lambda: len(kept) == 100, "all are here")
        dealer.close()
    assert list(map(bytes, kept)) == sent
    assert {_place_of(frame) % 16 for frame in kept} == {0}
    for frame in kept:
        memoryview(frame)[:] = bytes(len(frame))
    assert not any(any(frame) for frame in kept)


def _place_of(frame: Frame) -> int:
    return np.frombuffer(frame, np.uint8).__array_interface__["data"][0]


# Where it listens


def _is_there(path: str) -> bool:
    return os.path.lexists(path)


def _write_mine(path: str) -> None:
    Path(path).write_text("mine")


def _is_mine(path: str) -> bool:
    return Path(path).read_text() == "mine"


@pytest.mark.parametrize("address", ["unix://", "unix://link", "unix:///a\0b"])
async def test_an_address_that_names_no_path_is_refused(address: str) -> None:
    with pytest.raises(TransportError, match="is not an address like unix:///path"):
        dial(address, _CONFIG, 1.0)
    with pytest.raises(TransportError, match="is not an address like unix:///path"):
        await Hub(address).__aenter__()


async def test_a_path_that_is_too_long_is_refused_and_the_longest_is_not(folder: str) -> None:
    longest = f"unix://{folder}/".ljust(107 + len("unix://"), "x")
    async with Hub(longest):
        pass
    for refused in (longest + "x", f"{longest[:-1]}ä"):
        with pytest.raises(TransportError, match="has 108 bytes, the kernel takes 107: choose a shorter folder"):
            await Hub(refused).__aenter__()
        with pytest.raises(TransportError, match="has 108 bytes"):
            dial(refused, _CONFIG, 1.0)


async def test_the_socket_is_our_users_alone_and_removed_at_the_end(unix_address: str) -> None:
    path = unix_address.removeprefix("unix://")
    async with Hub(unix_address):
        assert stat.S_IMODE(os.lstat(path).st_mode) == 0o600
    assert not _is_there(path)


async def test_the_socket_of_a_dead_orchestrator_is_replaced(unix_address: str) -> None:
    path = unix_address.removeprefix("unix://")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
        dead.listen()
    assert _is_there(path)
    async with Hub(unix_address) as hub:
        dealer = dial(unix_address, _CONFIG, 1.0)
        dealer.send([b"hello"])
        await wait_until_async(lambda: hub.heard, "it is heard")
        dealer.close()


async def test_the_socket_of_a_living_orchestrator_is_left_alone(unix_address: str) -> None:
    async with Hub(unix_address) as hub:
        with pytest.raises(TransportError, match="Address already in use"):
            await Hub(unix_address).__aenter__()
        dealer = dial(unix_address, _CONFIG, 1.0)
        dealer.send([b"hello"])
        await wait_until_async(lambda: hub.heard, "it is heard")
        dealer.close()
        await wait_until_async(lambda: hub.lost, "it is lost")
        assert len(hub.lost) == 1, "who only looked was nobody"


async def test_a_file_that_is_no_socket_is_left_alone(unix_address: str) -> None:
    path = unix_address.removeprefix("unix://")
    _write_mine(path)
    with pytest.raises(TransportError, match="cannot listen on"):
        await Hub(unix_address).__aenter__()
    assert _is_mine(path)


async def test_a_file_that_somebody_else_has_put_there_is_left_alone(unix_address: str) -> None:
    path = unix_address.removeprefix("unix://")
    async with Hub(unix_address):
        os.rename(path, f"{path}.old")
        _write_mine(path)
    assert _is_mine(path)


async def test_a_folder_that_is_not_there_is_named(folder: str) -> None:
    with pytest.raises(TransportError, match=f"cannot listen on unix://{folder}/none/link: No such file"):
        await Hub(f"unix://{folder}/none/link").__aenter__()


async def test_a_message_beyond_the_bounds_is_refused_where_it_is_made(unix_address: str) -> None:
    async with Hub(unix_address) as hub:
        dealer = dial(unix_address, _CONFIG, 1.0)
        for frames in ([], [b""] * (MAX_FRAMES + 1)):
            with pytest.raises(TransportError, match="expected 1 to"):
                dealer.send(frames)
        dealer.send([b""] * 100_000)
        await wait_until_async(lambda: hub.heard, "it is heard")
        assert hub.heard[0][1] == [b""] * 100_000
        with pytest.raises(TransportError, match="expected 1 to"):
            hub.link.send(hub.heard[0][0], [])
        dealer.close()


async def test_a_thread_that_waits_is_woken_by_a_message(address: str) -> None:
    async with Hub(address) as hub:
        dealer = dial(address, _CONFIG, 30.0)
        dealer.send([b"hello"])
        await wait_until_async(lambda: hub.heard, "it is heard")
        found: list[list[Frame] | None] = []
        thread = threading.Thread(target=lambda: found.append(dealer.receive()))
        thread.start()
        assert hub.link.send(hub.heard[0][0], [b"wake", b"up"])
        await asyncio.to_thread(thread.join, 10)
        assert [list(map(bytes, frames or [])) for frames in found] == [[b"wake", b"up"]]
        dealer.close()
