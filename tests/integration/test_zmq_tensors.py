"""The ZeroMQ tier over real sockets: every byte arrives, and a lost tensor is reported as lost."""

import signal
import threading
import time

import msgspec
import pytest

from dyorc.config import TransportConfig
from dyorc.errors import TensorLostError, TransportError
from dyorc.transport.tiers import ByteSpan, TensorHolder
from tests.integration.tensor_source import CHUNK, SIZES, START, doomed_server, source_of, whole
from tests.integration.zmq_ends import HASTY, fetch, fetching, serving


@pytest.mark.parametrize("num_bytes", SIZES)
def test_every_size_arrives(num_bytes: int) -> None:
    source = source_of(num_bytes)
    with serving(source) as holder, fetching() as tier:
        assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]


def test_parts_of_several_blocks_arrive_in_one_fetch() -> None:
    source = source_of(3 * CHUNK, 10, 0, 5 * CHUNK + 1)
    spans = [
        ByteSpan(1, START + 5, 2 * CHUNK),
        whole(source, 4),
        ByteSpan(2, START + 3, 4),
        ByteSpan(3, START, 0),
        whole(source, 1),
    ]
    with serving(source) as holder, fetching() as tier:
        found = fetch(tier, holder, *spans)
        assert fetch(tier, holder) == []
    assert found == [source.blocks[span.block][span.offset - START :][: span.num_bytes] for span in spans]


def test_tiers_of_several_threads_share_a_server() -> None:
    source = source_of(200 * CHUNK)
    found: list[bytearray] = []

    def run(holder: TensorHolder) -> None:
        with fetching() as tier:
            for _ in range(3):
                found.extend(fetch(tier, holder, whole(source, 1)))

    with serving(source) as holder:
        threads = [threading.Thread(target=run, args=(holder,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [source.blocks[1]] * 9


def test_a_block_that_is_not_there_is_lost_and_the_next_fetch_works() -> None:
    source = source_of(50 * CHUNK)
    with serving(source) as holder, fetching() as tier:
        for num_bytes in (0, 1, 30 * CHUNK):
            with pytest.raises(TensorLostError, match=r"'replica-7', block 9: block 9 is not there"):
                fetch(tier, holder, whole(source, 1), ByteSpan(9, START, num_bytes))
        assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]


def test_a_block_that_is_freed_in_the_middle_of_a_fetch_is_lost() -> None:
    source = source_of(50 * CHUNK, 10)
    source.before_read = lambda: source.num_reads == 20 and source.blocks.pop(1)
    with serving(source) as holder, fetching() as tier:
        with pytest.raises(TensorLostError, match="block 1"):
            fetch(tier, holder, whole(source, 1))
        assert fetch(tier, holder, whole(source, 2)) == [source.blocks[2]]


def test_a_block_that_is_freed_while_it_is_copied_is_lost() -> None:
    source = source_of(10)
    span = whole(source, 1)
    source.after_read = lambda: source.blocks.pop(1)
    with serving(source) as holder, fetching() as tier, pytest.raises(TensorLostError, match="freed while it was read"):
        fetch(tier, holder, span)


def test_bytes_outside_of_a_block_are_refused() -> None:
    source = source_of(10)
    with serving(source) as holder, fetching() as tier:
        for span in (ByteSpan(1, START, 11), ByteSpan(1, START - 1, 5), ByteSpan(1, 2**62, 1)):
            with pytest.raises(TransportError, match="not all within block 1") as caught:
                fetch(tier, holder, span)
            assert not isinstance(caught.value, TensorLostError)


def test_a_bug_in_the_source_is_reported_and_the_server_goes_on() -> None:
    source = source_of(10)
    source.before_read = lambda: source.num_reads == 1 and {}["oops"]
    with serving(source) as holder, fetching() as tier:
        with pytest.raises(TransportError, match="KeyError"):
            fetch(tier, holder, whole(source, 1))
        assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]


def test_buffers_that_do_not_fit_are_refused() -> None:
    source = source_of(10)
    with serving(source) as holder, fetching() as tier:
        for spans, into in (
            ([whole(source, 1)], [memoryview(bytearray(9))]),
            ([whole(source, 1)], [memoryview(bytes(10))]),
            ([whole(source, 1)], [memoryview(bytearray(20))[::2]]),
            ([whole(source, 1)], []),
            ([ByteSpan(-1, START, 10)], [memoryview(bytearray(10))]),
            ([ByteSpan(1, 2**64, 10)], [memoryview(bytearray(10))]),
        ):
            with pytest.raises(TransportError):
                tier.fetch(holder, spans, into)
    assert source.num_reads == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_holder_that_dies_or_stops_in_the_middle_is_noticed_after_a_second(number: signal.Signals) -> None:
    source = source_of(10)
    with doomed_server("zmq", number) as address, serving(source) as living, fetching(TransportConfig(chunk_bytes=CHUNK)) as tier:
        start_s = time.monotonic()
        with pytest.raises(TensorLostError, match=r"nothing came from holder 'doomed' at tcp://127\.0\.0\.1:\d+ for 1\.0 s"):
            fetch(tier, TensorHolder("doomed", "", "", address), ByteSpan(1, START, 200 * CHUNK))
        assert time.monotonic() - start_s > 0.9
        assert fetch(tier, living, whole(source, 1)) == [source.blocks[1]]


def test_a_holder_that_is_gone_is_lost_and_one_at_a_new_address_is_found() -> None:
    source = source_of(10)
    with serving(source) as holder:
        gone = holder
    with fetching(HASTY) as tier, pytest.raises(TensorLostError, match="nothing came"):
        fetch(tier, gone, whole(source, 1))
    with fetching() as tier:
        for _ in range(2):
            with serving(source) as holder:
                assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]
        with pytest.raises(TransportError):
            fetch(tier, msgspec.structs.replace(holder, zmq_address="tcp://127.0.0.1:nowhere"), whole(source, 1))
        assert not tier.reaches(TensorHolder("other", "", ""))


def test_a_server_stops_though_receivers_are_connected() -> None:
    source = source_of(10)
    with fetching() as tier, serving(source) as holder:
        fetch(tier, holder, whole(source, 1))
