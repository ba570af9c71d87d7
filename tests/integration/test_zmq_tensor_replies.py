"""What the ZeroMQ tier requests on credit, and how it handles bad, late and unsolicited replies."""

import threading

import msgspec
import pytest

from dyorc.errors import TensorLostError, TransportError
from dyorc.transport.tiers import ByteSpan
from tests.integration.tensor_source import CHUNK, CONFIG
from tests.integration.zmq_ends import HASTY, fake_server, fetch, fetching, in_thread, receive_all, reply


def test_the_credit_is_fully_used_and_never_exceeded() -> None:
    """A server that answers only when no more requests come sees everything that is requested on credit."""
    with fake_server() as (socket, holder), fetching() as tier:
        result = in_thread(lambda: fetch(tier, holder, ByteSpan(1, 0, 3 * CHUNK), ByteSpan(2, 0, 7 * CHUNK + 1)))
        counts, num_open = [], []
        while len(counts) < 3 + 8:
            num_open += receive_all(socket)
            counts.append(len(num_open))
            peer, request = num_open.pop(0)
            socket.send_multipart([peer, reply(request), bytes(request[4])])
        assert result() == [bytearray(3 * CHUNK), bytearray(7 * CHUNK + 1)]
    assert max(counts) == counts[0] == CONFIG.max_chunks_in_flight
    assert counts[:7] == [4] * 7


BAD_REPLIES = {
    "short": lambda request: [reply(request), bytes(CHUNK - 1)],
    "long": lambda request: [reply(request), bytes(CHUNK + 1)],
    "no body": lambda request: [reply(request)],
    "two bodies": lambda request: [reply(request), bytes(CHUNK), b""],
    "wrong version": lambda request: [reply(request, version=2), bytes(CHUNK)],
    "wrong outcome": lambda request: [reply(request, outcome=7), bytes(CHUNK)],
    "no header": lambda request: [b"\xc1\xff\x00", bytes(CHUNK)],
    "empty header": lambda request: [b"", bytes(CHUNK)],
    "refused": lambda request: [reply(request, outcome=2), bytes(CHUNK)],
}


@pytest.mark.parametrize("kind", BAD_REPLIES)
def test_a_bad_reply_is_an_error_and_writes_nothing_outside_its_buffer(kind: str) -> None:
    memory = bytearray(b"." * (CHUNK + 200))
    with fake_server() as (socket, holder), fetching() as tier:
        result = in_thread(lambda: tier.fetch(holder, [ByteSpan(1, 0, CHUNK)], [memoryview(memory)[100:-100]]))
        peer, frame = socket.recv_multipart()
        socket.send_multipart([peer, *BAD_REPLIES[kind](msgspec.msgpack.decode(frame))])
        with pytest.raises(TransportError) as caught:
            result()
        assert not isinstance(caught.value, TensorLostError)
    assert (memory[:100], memory[-100:]) == (b"." * 100, b"." * 100)


def test_late_and_unsolicited_replies_are_not_taken_for_others() -> None:
    with fake_server() as (socket, holder), fetching(HASTY) as hasty:
        with pytest.raises(TensorLostError):
            fetch(hasty, holder, ByteSpan(1, 0, 5))
        late_peer, late = receive_all(socket)[0]
        result = in_thread(lambda: fetch(hasty, holder, ByteSpan(1, 0, 5)))
        peer, frame = socket.recv_multipart()
        request = msgspec.msgpack.decode(frame)
        assert request[1] != late[1], "a request id was used twice"
        socket.send_multipart([late_peer, reply(late), b"late!"])
        for stale in (late, [1, 0], [1, 2**63 - 1]):
            socket.send_multipart([peer, reply(stale), b"late!"])
        socket.send_multipart([peer, reply(request), b"right"])
        assert result() == [b"right"]


def test_unsolicited_replies_do_not_keep_a_holder_alive() -> None:
    is_over = threading.Event()
    with fake_server() as (socket, holder), fetching(HASTY) as tier:
        result = in_thread(lambda: fetch(tier, holder, ByteSpan(1, 0, 5)))
        peer, _ = socket.recv_multipart()

        def chatter() -> None:
            while not is_over.wait(0.01):
                socket.send_multipart([peer, reply([1, 10**6]), b"hello"])

        thread = threading.Thread(target=chatter)
        thread.start()
        try:
            with pytest.raises(TensorLostError, match="nothing came"):
                result()
        finally:
            is_over.set()
            thread.join()
