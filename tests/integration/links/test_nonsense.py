"""A stranger that sends nonsense loses its connection, and nobody else is harmed."""

import asyncio
import contextlib
import socket
import struct

from dyorc.transport.link import dial
from dyorc.transport.unix_framing import MAX_FRAMES, MAX_MESSAGE_BYTES, pack
from tests.deadlines import TIMEOUT_S
from tests.integration.links.hub import CONFIG, Hub, peer_processes

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


async def test_a_stranger_that_sends_nonsense_loses_its_connection_and_harms_nobody(address: str) -> None:
    with peer_processes(address, 1) as (process,):
        async with Hub(address) as hub:
            peer = await hub.meet(process)
            for nonsense in _NONSENSE:
                with socket.socket(socket.AF_UNIX) as stranger:
                    stranger.connect(address.partition("://")[2])
                    stranger.sendall(nonsense)
                    if address.startswith("unix"):
                        await asyncio.to_thread(_read_to_end, stranger)
                    assert await hub.ask(peer, b"echo", b"here", answer=b"echo") == [b"echo", b"here"], nonsense[:20]
                assert hub.lost == [], nonsense[:20]
                assert {one for one, _ in hub.heard} == {peer}, nonsense[:20]


async def test_messages_before_nonsense_arrive(unix_address: str) -> None:
    async with Hub(unix_address) as hub:
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(unix_address.removeprefix("unix://"))
            for byte in _WHOLE:  # however the messages are cut up
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
        dealer = dial(unix_address, CONFIG, 5.0)
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
    with contextlib.suppress(ConnectionResetError):  # the link may close before it has read everything
        while stranger.recv(4096):
            pass
