"""A program's results become references to copies."""

from pathlib import Path

import numpy as np
import pytest

from dyorc.arrays import Array
from dyorc.cells.results import Results
from dyorc.orchestrator.tensors import OWN, Tensors
from dyorc.tensor import TensorRef, blocks_of
from dyorc.transport.codec import Rows
from dyorc.transport.outbox import NoRoomError, Outbox
from tests.exchanges import exchange

NUMBERS = np.arange(12, dtype=np.float32).reshape(3, 4)
TEXTS = [np.array(text, object) for text in (b"a", b"bc", b"")]


@pytest.mark.parametrize(
    "rows",
    [
        NUMBERS,
        NUMBERS.T.copy().T,
        np.broadcast_to(np.float32(3), (3, 4)),
        [np.ones(size, np.int8) for size in range(3)],
        TEXTS,
        np.arange(3),
        np.zeros((3, 0, 2)),
        np.arange(3 * 2**12, dtype=np.int64).reshape(3, 2**12),
    ],
)
def test_every_call_has_its_own_part(rows: Rows) -> None:
    kept = Results("here").keep([rows])
    assert len(kept) == 3
    for (tensor,), row in zip(kept, rows, strict=True):
        np.testing.assert_array_equal(tensor.data, row)
        assert (tensor.shape, tensor.data.dtype, tensor.node, tensor.block) == (row.shape, row.dtype, "here", 0)
        assert not np.shares_memory(tensor.data, row) or row.dtype == object


def test_a_large_tensor_does_not_keep_the_others_of_its_batch_alive() -> None:
    kept = Results("here").keep([np.zeros((64, 4096))])
    assert all(tensor.data.base is None for (tensor,) in kept)


def test_with_replicas_elsewhere_large_tensors_lie_in_the_arena(tmp_path: Path) -> None:
    tensors = Tensors(exchange(str(tmp_path), OWN, inline_limit_bytes=64))
    with tensors.exchange:
        tensors.open()
        results = Results("here", Outbox(tensors.exchange.arena, 64))
        large, small = np.arange(300, dtype=np.int64).reshape(3, 100), np.arange(3)
        kept = results.keep([small, large])
        assert [[bool(tensor.block) for tensor in row] for row in kept] == [[False, True]] * 3
        for number, (first, second) in enumerate(kept):
            read = tensors.read([first, second])
            np.testing.assert_array_equal(read[0], small[number])
            np.testing.assert_array_equal(read[1], large[number])
        free(tensors, kept)
        tensors.close()


def test_memory_that_the_program_asked_for_is_not_copied(tmp_path: Path) -> None:
    tensors = Tensors(exchange(str(tmp_path), OWN, inline_limit_bytes=64))
    with tensors.exchange:
        tensors.open()
        outbox = Outbox(tensors.exchange.arena, 64)
        results = Results("here", outbox)
        used, unused = results.reserve(800), results.reserve(800)
        assert used is not None
        assert unused is not None
        kept = results.keep([np.frombuffer(used, np.int64).reshape(2, 50)])
        results.done()
        assert (outbox.num_copied_bytes, tensors.exchange.arena.num_blocks) == (0, 1)
        free(tensors, kept)
        tensors.close()


def test_without_replicas_elsewhere_neither_is_it_copied() -> None:
    results = Results("here")
    used, twice = results.reserve(8192), results.reserve(8192)
    assert used is not None
    assert twice is not None
    first, second = np.frombuffer(used, np.int64).reshape(2, 512), np.frombuffer(twice, np.int64).reshape(1, 1024)
    kept = results.keep([first])
    assert [tensor.data.tolist() for (tensor,) in kept] == first.tolist()
    assert all(np.shares_memory(tensor.data, first) for (tensor,) in kept)
    assert not np.shares_memory(results.keep([first])[0][0].data, first)  # once only
    assert not np.shares_memory(results.keep([second[:, :1000]])[0][0].data, second)  # only what fills it
    results.done()
    assert not np.shares_memory(results.keep([second])[0][0].data, second)  # and only in its own batch


def test_what_comes_to_lie_where_unused_memory_was_is_copied() -> None:
    """A program that asks for memory and drops it may then be given the same place for a buffer of its own."""
    results = Results("here")
    for _ in range(20):
        results.reserve(2**20)
        own = np.zeros((1, 2**20), np.uint8)
        assert not np.shares_memory(results.keep([own])[0][0].data, own)


def test_small_results_get_no_memory_of_their_own() -> None:
    assert Results("here").reserve(64) is None


def test_nothing_is_kept_if_there_is_no_room(tmp_path: Path) -> None:
    tensors = Tensors(exchange(str(tmp_path), OWN, inline_limit_bytes=64))
    with tensors.exchange:
        tensors.open()
        arena = tensors.exchange.arena
        results = Results("here", Outbox(arena, 64))
        half: Array = np.zeros((1, arena.max_block_bytes * 3 // 5), np.uint8)
        with pytest.raises(NoRoomError):
            results.keep([half, half])
        assert arena.num_blocks == 0
        tensors.close()


def free(tensors: Tensors, kept: list[tuple[TensorRef, ...]]) -> None:
    """Frees all blocks of some results."""
    tensors.free(list(dict.fromkeys(blocks_of(tensor for row in kept for tensor in row))))
    assert tensors.exchange.arena.num_blocks == 0
