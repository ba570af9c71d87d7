"""Whatever comes over the wires of the tensor path, a fetch ends with the right bytes or one of our errors, and writes nowhere
else."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from dyorc.errors import TensorLostError, TransportError
from dyorc.transport.grpc_tensors import ChunkSink, chunks_of
from dyorc.transport.tensors_pb2 import FetchRequest, TensorChunk
from dyorc.transport.tiers import ByteSpan, TensorHolder
from dyorc.transport.zmq_security import answer as answer_zap
from dyorc.transport.zmq_tensors import Assembly, ChunkReply, ReplyOutcome, answer, check_buffers, decode_reply, decode_request

HOLDER = TensorHolder("replica-7", "node-1", "")
MAX_BYTES = 64
GUARD = b"\xa5" * 16

wild_ints = st.one_of(st.integers(-3, 70), st.integers(-(2**63), 2**64 - 1))
fields = st.one_of(wild_ints, st.text(max_size=3), st.none(), st.floats(), st.binary(max_size=3), st.lists(wild_ints, max_size=2))
near_headers = st.lists(st.one_of(st.just(1), fields), max_size=7).map(msgspec.msgpack.encode)
requests = st.tuples(st.just(1), wild_ints, st.integers(1, 3), wild_ints, wild_ints).map(msgspec.msgpack.encode)
frames = st.one_of(st.binary(max_size=60), near_headers, requests)


class FakeSource:
    """Block 1 holds the numbers from 0 to 199; block 2 is freed whenever it is read; block 3 does not exist."""

    block = bytes(range(200))

    def read_only(self, block_id: int, offset: int, num_bytes: int) -> memoryview:
        if block_id not in (1, 2):
            raise TensorLostError(f"block {block_id} is not there")
        if not 0 <= offset <= offset + num_bytes <= len(self.block):
            raise TransportError("outside")
        return memoryview(self.block)[offset : offset + num_bytes]

    def is_intact(self, block_id: int) -> bool:
        return block_id == 1


@given(frames)
@example(msgspec.msgpack.encode([1, 5, 1, 0, 10]))
@example(msgspec.msgpack.encode([1, 5, 1, 0, MAX_BYTES + 1]))
@example(b"\x95" + b"\xdd\xff\xff\xff\xff" * 5)
def test_a_server_answers_requests_and_nothing_else(frame: bytes) -> None:
    try:
        request = decode_request(frame)
    except TransportError:
        with pytest.raises(TransportError):
            answer(FakeSource(), frame, MAX_BYTES)
        return
    header, body = answer(FakeSource(), frame, MAX_BYTES)
    reply = decode_reply(header)
    assert reply.request == request.request
    if reply.outcome is ReplyOutcome.SENT:
        assert bytes(body) == FakeSource.block[request.offset :][: request.num_bytes]
        assert request.block == 1
        assert request.num_bytes <= MAX_BYTES
    else:
        assert bytes(body) == b""
        assert (reply.outcome is ReplyOutcome.LOST) <= (request.block != 1)


class Memory:
    """Buffers for spans, each with guards around it."""

    def __init__(self, spans: list[ByteSpan]) -> None:
        self.parts = [bytearray(GUARD + bytes(span.num_bytes) + GUARD) for span in spans]

    @property
    def buffers(self) -> list[memoryview]:
        return [memoryview(part)[len(GUARD) : len(part) - len(GUARD)] for part in self.parts]

    def check(self) -> None:
        assert all(part.startswith(GUARD) and part.endswith(GUARD) for part in self.parts)


spans_of_fetch = st.lists(st.tuples(st.integers(0, 150), st.integers(0, 50)).map(lambda at: ByteSpan(1, *at)), max_size=4)


def put(target: memoryview | None, body: bytes) -> None:
    """Receives a body, as `recv_into` does."""
    if target is not None:
        length = min(len(target), len(body))
        target[:length] = body[:length]


@given(spans_of_fetch, st.integers(1, 20), st.integers(1, 4), st.data())
def test_replies_in_any_order_put_every_byte_in_its_place(
    spans: list[ByteSpan], chunk_bytes: int, credit: int, data: st.DataObject
) -> None:
    memory = Memory(spans)
    assembly = Assembly(HOLDER, spans, check_buffers(spans, memory.buffers), chunk_bytes, first_id=10)
    sent = [request for _ in range(credit) if (request := assembly.next_request())]
    num_sent = len(sent)
    while not assembly.is_complete:
        request = sent.pop(data.draw(st.integers(0, len(sent) - 1)))
        header, body = answer(FakeSource(), request, chunk_bytes)
        target = assembly.target_of(header)
        assert target is not None
        assert len(target) == len(bytes(body))
        put(target, bytes(body))
        assert assembly.target_of(header) is None, "a reply counts once"
        if following := assembly.next_request():
            sent.append(following)
            num_sent += 1
    assert not sent
    assert assembly.next_id == 10 + num_sent
    assert [bytes(buffer) for buffer in memory.buffers] == [FakeSource.block[s.offset :][: s.num_bytes] for s in spans]
    memory.check()


near_replies = st.tuples(st.just(1), st.one_of(st.integers(0, 6), wild_ints), st.integers(-1, 4), st.text(max_size=3))
headers = st.one_of(near_replies.map(msgspec.msgpack.encode), frames)


@given(spans_of_fetch, st.lists(st.tuples(headers, st.binary(max_size=80)), max_size=12))
@example([ByteSpan(1, 0, 3)], [(msgspec.msgpack.encode(ChunkReply(1, 1, ReplyOutcome.SENT)), bytes(80))])
def test_any_replies_end_in_our_errors_and_write_nowhere_else(spans: list[ByteSpan], replies: list[tuple[bytes, bytes]]) -> None:
    memory = Memory(spans)
    assembly = Assembly(HOLDER, spans, check_buffers(spans, memory.buffers), 7, first_id=1)
    for _ in range(4):
        assembly.next_request()
    with suppress(TransportError):
        for header, body in replies:
            put(assembly.target_of(header), body)
    memory.check()


wild_counts = st.one_of(st.integers(0, 250), st.integers(0, 2**64 - 1))
fetch_requests = st.builds(FetchRequest, block=st.integers(1, 3), offset=wild_counts, num_bytes=wild_counts)


def decoded(kind: Callable[[], st.SearchStrategy], message: type) -> st.SearchStrategy:
    """Draws messages of a type: built, or decoded from random bytes."""

    def decode(raw: bytes) -> object:
        with suppress(DecodeError):
            return message.FromString(raw)
        return message()

    return st.one_of(kind(), st.binary(max_size=40).map(decode))


@given(decoded(lambda: fetch_requests, FetchRequest), st.integers(1, 300))
def test_a_grpc_server_sends_all_or_says_why_not(request: Any, chunk_bytes: int) -> None:
    target = bytearray(GUARD + bytes(min(request.num_bytes, 200)) + GUARD)
    sink = ChunkSink(memoryview(target)[len(GUARD) : -len(GUARD)])
    try:
        for chunk in chunks_of(FakeSource(), request, chunk_bytes):
            assert 0 < len(chunk.data) <= chunk_bytes
            sink.take(TensorChunk.FromString(chunk.SerializeToString()))
        sink.finish()
    except TensorLostError:
        assert request.block != 1
    except TransportError:
        assert request.offset + request.num_bytes > len(FakeSource.block)
    else:
        expected = FakeSource.block[request.offset :][: request.num_bytes]
        assert target == GUARD + expected + GUARD


tensor_chunks = st.builds(TensorChunk, offset=st.one_of(st.integers(0, 12), wild_counts), data=st.binary(max_size=12))


@given(st.integers(0, 30), st.lists(decoded(lambda: tensor_chunks, TensorChunk), max_size=8))
@example(10, [TensorChunk(offset=0, data=bytes(10)), TensorChunk(offset=10)])
@example(10, [TensorChunk(offset=0, data=bytes(11))])
def test_any_chunks_end_in_our_errors_and_write_nowhere_else(num_bytes: int, chunks: list) -> None:
    target = bytearray(GUARD + bytes(num_bytes) + GUARD)
    sink = ChunkSink(memoryview(target)[len(GUARD) : len(GUARD) + num_bytes])
    with suppress(TransportError):
        for chunk in chunks:
            sink.take(chunk)
        sink.finish()
        assert target == GUARD + b"".join(chunk.data for chunk in chunks) + GUARD, "taken for whole, and is not"
        assert all(chunk.data for chunk in chunks), "who sends empty chunks could go on for ever"
    assert target.startswith(GUARD)
    assert target.endswith(GUARD)
    assert len(target) == num_bytes + 2 * len(GUARD)


KEY = bytes(range(32))
QUESTION = (b"1.0", b"1", b"dyorc", b"127.0.0.1", b"", b"CURVE", KEY)


@given(st.lists(st.one_of(st.sampled_from(QUESTION), st.binary(max_size=40)), max_size=9))
@example(list(QUESTION))
@example([*QUESTION[:2], b"other", *QUESTION[3:]])
@example([b"2.0", *QUESTION[1:]])
@example([*QUESTION[:5], b"PLAIN", KEY])
@example([*QUESTION, b""])
def test_only_the_question_about_our_key_is_answered_with_yes(question: list[bytes]) -> None:
    found = answer_zap(question, KEY)
    assert len(found) == 6
    asked = (*question[:1], *question[2:3], *question[5:])
    assert (found[2] == b"200") == (asked == (b"1.0", b"dyorc", b"CURVE", KEY))
