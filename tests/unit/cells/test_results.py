"""A program's results become references to copies."""

from pathlib import Path
from typing import cast

import numpy as np
import pytest

from dyorc.answering.tensor_exchange import OWN, Tensors
from dyorc.cells.program_tensors import ProgramResults
from dyorc.core.arrays import Array
from dyorc.core.tensor import TensorRef, blocks_of
from dyorc.transport.arena import Arena
from dyorc.transport.column_codec import Rows
from dyorc.transport.outbox import NoRoomError, Outbox
from tests.exchanges import exchange

NUMBERS = np.arange(12, dtype=np.float32).reshape(3, 4)
TEXTS = [np.array(text, object) for text in (b"a", b"bc", b"")]


def results_of_arrays() -> ProgramResults:
    """Returns what keeps results of any size as arrays."""
    return ProgramResults("here", Outbox(cast(Arena, None), 2**62))


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
    kept = results_of_arrays().keep([rows])
    assert len(kept) == 3
    for (tensor,), row in zip(kept, rows, strict=True):
        np.testing.assert_array_equal(tensor.data, row)
        assert (tensor.shape, tensor.data.dtype, tensor.node, tensor.block) == (row.shape, row.dtype, "here", 0)
        assert not np.shares_memory(tensor.data, row) or row.dtype == object


def test_a_large_tensor_does_not_keep_the_others_of_its_batch_alive() -> None:
    kept = results_of_arrays().keep([np.zeros((64, 4096))])
    assert all(tensor.data.base is None for (tensor,) in kept)


def test_large_tensors_lie_in_the_arena(tmp_path: Path) -> None:
    tensors = Tensors(exchange(str(tmp_path), OWN, inline_limit_bytes=64))
    with tensors.exchange:
        tensors.open()
        results = ProgramResults("here", Outbox(tensors.exchange.arena, 64))
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
        results = ProgramResults("here", outbox)
        used, unused = results.reserve(800), results.reserve(800)
        assert used is not None
        assert unused is not None
        kept = results.keep([np.frombuffer(used, np.int64).reshape(2, 50)])
        results.done()
        assert (outbox.num_copied_bytes, tensors.exchange.arena.num_blocks) == (0, 1)
        free(tensors, kept)
        tensors.close()


def test_nothing_is_kept_if_there_is_no_room(tmp_path: Path) -> None:
    tensors = Tensors(exchange(str(tmp_path), OWN, inline_limit_bytes=64))
    with tensors.exchange:
        tensors.open()
        arena = tensors.exchange.arena
        results = ProgramResults("here", Outbox(arena, 64))
        half: Array = np.zeros((1, arena.max_block_bytes * 3 // 5), np.uint8)
        with pytest.raises(NoRoomError):
            results.keep([half, half])
        assert arena.num_blocks == 0
        tensors.close()


def free(tensors: Tensors, kept: list[tuple[TensorRef, ...]]) -> None:
    """Frees all blocks of some results."""
    tensors.free(list(dict.fromkeys(blocks_of(tensor for row in kept for tensor in row))))
    assert tensors.exchange.arena.num_blocks == 0
