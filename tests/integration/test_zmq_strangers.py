"""Strangers on ZeroMQ: garbage does nothing, and nobody reaches anything without the cluster's keys."""

import asyncio
import os
import socket
import sys

import msgspec
import pytest
import zmq

from dyorc.config import LinkConfig
from dyorc.errors import TensorLostError, TransportError
from dyorc.transport.link import call
from dyorc.transport.peer_process import LinkCallbacks
from dyorc.transport.tiers import ByteSpan, TensorHolder
from dyorc.transport.zmq_link import DealerLink, RouterLink
from dyorc.transport.zmq_security import ClusterKeys
from dyorc.transport.zmq_tensors import ReplyOutcome, ZmqTensorServer
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.integration.tensor_source import CHUNK, CONFIG, START, source_of, whole
from tests.integration.zmq_ends import HASTY, fetch, fetching, serving

GARBAGE = [
    [b""],
    [b"\xff" * 100],
    [b"", b"", b""],
    [os.urandom(50)] * 20,
    [bytes(1000)],
    [msgspec.msgpack.encode([2, 1, 1, START, 10])],
    [msgspec.msgpack.encode([1, 1, 1, START])],
    [msgspec.msgpack.encode([1, 1, 1, START, 10, 5])],
    [msgspec.msgpack.encode([1, 2**64 - 1, 2**64 - 1, 2**64 - 1, 2**64 - 1])],
    [msgspec.msgpack.encode([1, 1, 1, START, -10])],
    [msgspec.msgpack.encode([1, 1, 1, START, 10]), b"more"],
    [b"\x91" * 1000],
]


def test_a_server_drops_garbage() -> None:
    source = source_of(50 * CHUNK)
    with serving(source) as holder, fetching() as tier, zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(holder.zmq_address)
        for message in GARBAGE:
            socket.send_multipart(message)
        socket.send(msgspec.msgpack.encode([1, 7, 1, 2**63 - 1, 2**63 - 1]))
        assert msgspec.msgpack.decode(socket.recv())[:3] == [1, 7, ReplyOutcome.REFUSED]
        socket.send(bytes(10**6))  # too large: the connection is closed
        assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]
        assert source.num_reads == 50, "some of the garbage was served"


def test_a_server_drops_connections_that_do_not_speak_zeromq() -> None:
    source = source_of(CHUNK)
    with serving(source) as holder, fetching() as tier:
        host, _, port = holder.zmq_address.removeprefix("tcp://").partition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(1000))
            assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]


KEYS = ClusterKeys.generate()


def test_processes_with_the_keys_reach_each_other() -> None:
    source = source_of(20 * CHUNK)
    with serving(source, keys=KEYS) as holder, fetching(keys=KEYS) as tier:
        assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]


def test_strangers_reach_nothing() -> None:
    other = ClusterKeys.generate()
    source = source_of(10)
    with serving(source, keys=KEYS) as holder:
        for keys in (None, other):
            with fetching(HASTY, keys) as tier, pytest.raises(TensorLostError, match="nothing came"):
                fetch(tier, holder, whole(source, 1))
        assert refusal(holder.zmq_address, other, KEYS.public) == zmq.EVENT_HANDSHAKE_FAILED_AUTH
        assert source.num_reads == 0
        with fetching(keys=KEYS) as tier:
            assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]
    with serving(source) as holder, fetching(HASTY, KEYS) as tier, pytest.raises(TensorLostError, match="nothing came"):
        fetch(tier, holder, whole(source, 1))  # a server that cannot prove that it belongs to the cluster


def refusal(address: str, keys: ClusterKeys, server_public: bytes) -> int:
    """Returns how the handshake ends for a client that knows the server's public key but not the cluster's secret."""
    events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = keys.public, keys.secret, server_public
        with socket.get_monitor_socket(events) as monitor:
            socket.connect(address)
            assert monitor.poll(30_000)
            event = int.from_bytes(monitor.recv_multipart()[0][:2], sys.byteorder)
            socket.disable_monitor()
        return event


def test_keys_are_checked_and_do_not_show_their_secret() -> None:
    assert KEYS.secret.decode() not in f"{KEYS!r} {KEYS} {list(KEYS.__rich_repr__())}"
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(KEYS), type=ClusterKeys) == KEYS
    with pytest.raises(TransportError, match="secret key has 3 characters"):
        ClusterKeys(KEYS.public, b"abc")


OPEN_ADDRESSES = [
    "tcp://0.0.0.0:*",
    "tcp://*:*",
    "tcp://10.0.0.7:4711",
    "tcp://eth0:*",
    "tcp://127.0.0.1.example.org:1",
    "tcp://127.0.0.1:0;10.0.0.7:4711",
    "tcp://[::]:*",
    "ws://127.0.0.1:80",
    "",
]


@pytest.mark.parametrize("address", OPEN_ADDRESSES)
async def test_an_address_that_other_machines_reach_needs_keys(address: str) -> None:
    link = LinkConfig()
    with pytest.raises(TransportError, match="needs the cluster's keys"):
        DealerLink(address, link, 1.0)
    with pytest.raises(TransportError, match="needs the cluster's keys"):
        await RouterLink(address, link, LinkCallbacks(lambda *_: None, lambda: None, lambda *_: None)).__aenter__()
    with fetching() as tier, pytest.raises(TransportError, match="needs the cluster's keys"):
        fetch(tier, TensorHolder("a", "", "", address), ByteSpan(1, 0, 1))
    if address.endswith(":*"):
        with pytest.raises(TransportError, match="needs the cluster's keys"):
            ZmqTensorServer(source_of(), address.removeprefix("tcp://").removesuffix(":*"), CONFIG, None).__enter__()


def test_a_server_with_keys_may_listen_on_all_interfaces() -> None:
    source = source_of(10)
    with serving(source, keys=KEYS, host="0.0.0.0") as holder, fetching(keys=KEYS) as tier:
        local = msgspec.structs.replace(holder, zmq_address=holder.zmq_address.replace("0.0.0.0", "127.0.0.1"))
        assert fetch(tier, local, whole(source, 1)) == [source.blocks[1]]


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_a_server_cannot_listen_on_a_host_that_is_not_ours(host: str) -> None:
    with pytest.raises(TransportError, match="cannot listen on"), ZmqTensorServer(source_of(), host, CONFIG, KEYS):
        pass


async def test_links_with_keys_carry_messages_and_notice_a_loss() -> None:
    received: list[list[bytes]] = []
    lost: list[bytes] = []
    callbacks = LinkCallbacks(
        lambda peer, frames: received.append([peer, *map(bytes, frames)]), lambda: None, lambda peer, _: lost.append(peer)
    )
    router = RouterLink("tcp://127.0.0.1:*", LinkConfig(), callbacks, keys=KEYS)
    async with router:
        stranger = DealerLink(router.address, LinkConfig(), 0.3, keys=ClusterKeys.generate())
        stranger.send([b"let me in"])
        dealer = DealerLink(router.address, LinkConfig(), 30.0, keys=KEYS)
        dealer.send([b"hello", b"world"])
        await wait_until_async(lambda: received, "the message")
        assert [frames[1:] for frames in received] == [[b"hello", b"world"]]
        assert router.send(received[0][0], [b"welcome"])
        assert list(map(bytes, dealer.receive() or [])) == [b"welcome"]
        assert stranger.receive() is None
        stranger.close(0)
        dealer.close()
        await wait_until_async(lambda: lost, "the loss")
        assert lost == [received[0][0]]
        assert len(received) == 1


async def _end_of_call(address: str, keys: ClusterKeys) -> str:
    """Returns why a call ended, which sends a message first."""
    ended = asyncio.get_running_loop().create_future()
    link = call(address, LinkConfig(), lambda frames: None, ended.set_result, keys=keys)
    link.send([b"hello"])
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await ended
    finally:
        link.close()


async def test_a_caller_learns_why_its_call_has_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    assert await _end_of_call(address, KEYS) == "no process listens there"
    heard = asyncio.Event()
    callbacks = LinkCallbacks(lambda peer, frames: heard.set(), lambda: None, lambda peer, ending: None)
    async with RouterLink("tcp://127.0.0.1:*", LinkConfig(), callbacks, keys=KEYS) as router:
        assert (
            await _end_of_call(router.address, ClusterKeys.generate())
            == "it ended before it accepted this process, or has other keys"
        )
        assert not heard.is_set()
        calling = asyncio.create_task(_end_of_call(router.address, KEYS))
        await heard.wait()
    assert await calling == "its connection has ended"
