"""How columns are read: what is refused, what is kept apart, and what is undone."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from dyorc.core.tensor import DType
from dyorc.engine.request_trace import Move
from dyorc.errors import TensorLostError, TransportError
from dyorc.transport.column_codec import Column, Rows, StoredColumn, StoredRows
from dyorc.transport.inbox import Inbox, InputsLostError
from dyorc.transport.tier_routes import Routes
from dyorc.transport.tiers import ByteSpan, TensorHolder
from tests.exchanges import FAR, CopyingTier, TensorPath, tensor_path

BATCH = np.arange(4000, dtype=np.float32).reshape(2, 2000)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[TensorPath]:
    """Opens a tensor path that stores every tensor."""
    with tensor_path(str(tmp_path)) as opened:
        yield opened


@pytest.fixture
def stored(path: TensorPath) -> StoredRows:
    """Stores two calls in the producer's arena."""
    headers, _ = path.producer.outbox.write([BATCH])
    assert isinstance(headers[0], StoredColumn)
    part = headers[0].parts[0]
    assert isinstance(part, StoredRows)
    return part


def read(path: TensorPath, *parts: StoredRows | Column, frames: Sequence[bytes] = ()) -> Rows:
    (rows,) = path.inbox.read([StoredColumn(DType.FP32, parts)], frames, [path.producer.holder])
    return rows


def test_writes_are_undone(path: TensorPath, stored: StoredRows) -> None:
    for _ in range(2):
        rows = read(path, stored)
        assert isinstance(rows, np.ndarray)
        assert np.array_equal(rows, BATCH)
        rows += 1
        path.inbox.done()


def test_views_that_are_not_undone_cannot_be_written_to(path: TensorPath, stored: StoredRows) -> None:
    inbox = Inbox(path.consumer.routes(), is_writing=False)
    (rows,) = inbox.read([StoredColumn(DType.FP32, (stored,))], [], [path.producer.holder])
    assert isinstance(rows, np.ndarray)
    assert not rows.flags.writeable
    assert not any(row.flags.writeable for row in read(path, stored, stored))


@pytest.mark.parametrize("holder", [-1, 1, 2**63])
def test_a_holder_that_is_not_listed_is_refused(path: TensorPath, stored: StoredRows, holder: int) -> None:
    with pytest.raises(TransportError, match="points beyond 1 holders"):
        read(path, msgspec.structs.replace(stored, holder=holder))


def test_a_column_without_parts_is_refused(path: TensorPath) -> None:
    with pytest.raises(TransportError, match="a column of 0 parts"):
        read(path)


def test_a_part_of_another_type_is_refused(path: TensorPath, stored: StoredRows) -> None:
    with pytest.raises(TransportError, match="a column of FP32 has a part of FP64"):
        read(path, stored, Column(DType.FP64, ((2000,),), 1), frames=[bytes(16_000)])


@pytest.mark.parametrize("change", [{"offset": 4096}, {"num_rows": 3}, {"num_rows": 2**16}, {"offset": 2**47}])
def test_bytes_beyond_the_block_are_refused(path: TensorPath, stored: StoredRows, change: dict[str, Any]) -> None:
    with pytest.raises(TransportError, match="are not within block") as caught:
        read(path, msgspec.structs.replace(stored, **change))
    assert not isinstance(caught.value, TensorLostError)


def test_the_error_names_a_block_that_is_gone(path: TensorPath, stored: StoredRows) -> None:
    path.producer.arena.free(stored.block)
    with pytest.raises(InputsLostError) as caught:
        read(path, stored)
    assert caught.value.blocks == (("producer", stored.block),)


def test_the_error_names_a_block_that_goes_while_it_is_read(path: TensorPath, stored: StoredRows) -> None:
    read(path, stored)
    path.inbox.check()
    path.producer.arena.free(stored.block)
    with pytest.raises(InputsLostError, match="released while it was read") as caught:
        path.inbox.check()
    assert caught.value.blocks == (("producer", stored.block),)
    path.inbox.done()
    path.inbox.check()


@pytest.mark.parametrize("arena", ["", "../etc/passwd", "dyorc-arena-0123456789abcdef", "x" * 300, "a\0b"])
def test_a_file_that_is_not_an_arena_is_refused(path: TensorPath, stored: StoredRows, arena: str) -> None:
    holder = TensorHolder("stranger", path.producer.holder.node, arena)
    with pytest.raises(TransportError):
        path.inbox.read([StoredColumn(DType.FP32, (stored,))], [], [holder])


def test_an_unreachable_holder_is_lost(path: TensorPath, stored: StoredRows) -> None:
    holder = TensorHolder("far", FAR, path.producer.arena.name)
    with pytest.raises(InputsLostError, match="no tier leads to holder 'far'") as caught:
        path.inbox.read([StoredColumn(DType.FP32, (stored,))], [], [holder])
    assert caught.value.blocks == (("far", stored.block),)


@pytest.mark.parametrize("num_rows", [2**16, 2**10])
def test_a_column_that_no_memory_can_hold_is_refused(path: TensorPath, stored: StoredRows, num_rows: int) -> None:
    """Another node's claim of a length cannot be verified before memory is taken for it."""
    huge = StoredRows(0, stored.block, stored.offset, 2**48, (2**46,), num_rows, 2**46)

    def landing(at: int, num_bytes: int) -> memoryview:
        return np.empty(num_bytes, np.uint8).data

    makers: list[Callable[[int, int], memoryview]] = [landing, lambda at, num_bytes: memoryview(bytearray(num_bytes))]
    for maker in makers:
        inbox = Inbox(path.consumer.routes(), maker)
        with pytest.raises(TransportError, match="no memory for a column"):
            inbox.read([StoredColumn(DType.FP32, (huge,))], [], [TensorHolder("far", FAR, path.producer.arena.name)])


def test_tensors_fetched_ahead_are_neither_fetched_again_nor_written_to(
    path: TensorPath, stored: StoredRows, tmp_path: Path
) -> None:
    tier = CopyingTier(str(tmp_path))
    kept = {ByteSpan(stored.block, stored.offset, BATCH.nbytes): memoryview(bytearray(BATCH.tobytes()))}
    inbox = Inbox(Routes((), (tier,)), staged=lambda holder, span, fetch: kept.get(span))
    for _ in range(2):
        (rows,) = inbox.read([StoredColumn(DType.FP32, (stored,))], [], [TensorHolder("far", FAR, path.producer.arena.name)])
        assert isinstance(rows, np.ndarray)
        assert np.array_equal(rows, BATCH)
        assert not rows.flags.writeable
        inbox.done()
    assert (tier.num_fetches, inbox.num_copied_bytes) == (0, 0)
    assert [(move.tier, move.num_bytes) for move in inbox.moves.take()] == [("process", 2 * BATCH.nbytes)]


def test_it_counts_how_tensors_came(path: TensorPath, stored: StoredRows, tmp_path: Path) -> None:
    frame = BATCH[0].tobytes()
    read(path, stored, Column(DType.FP32, ((2000,),)), frames=[frame])
    assert path.inbox.moves.take() == (Move("message", len(frame)), Move("shm", BATCH.nbytes))
    assert path.inbox.moves.take() == ()
    tier = CopyingTier(str(tmp_path))
    inbox = Inbox(Routes((), (tier,)))
    for _ in range(2):
        inbox.read([StoredColumn(DType.FP32, (stored,))], [], [TensorHolder("far", FAR, path.producer.arena.name)])
    (move,) = inbox.moves.take()
    assert (move.tier, move.num_bytes) == (tier.name, 2 * BATCH.nbytes)
    assert move.took_s > 0
