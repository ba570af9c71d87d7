"""Where tensors are put: small ones into frames, large ones into one block per column, or nowhere if there is no room."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dyorc.core.arrays import Array
from dyorc.errors import TransportError
from dyorc.transport import arena
from dyorc.transport.arena import PAGE_BYTES, Arena
from dyorc.transport.column_codec import Column, StoredColumn, StoredRows
from dyorc.transport.outbox import NoRoomError, Outbox, TooLargeError
from dyorc.transport.tensor_path import TensorExchange
from tests.exchanges import exchange

LIMIT = 100


@pytest.fixture
def own(tmp_path: Path) -> Iterator[TensorExchange]:
    """Opens a process with an arena of 1 MiB."""
    with exchange(str(tmp_path), "own", inline_limit_bytes=LIMIT, arena_bytes=2**20) as opened:
        yield opened


def parts_of(header: object) -> list[StoredRows]:
    assert isinstance(header, StoredColumn)
    parts = [part for part in header.parts if isinstance(part, StoredRows)]
    assert len(parts) == len(header.parts)
    return parts


@pytest.mark.parametrize("num_calls", [1, 5])
@pytest.mark.parametrize(("num_bytes", "is_stored"), [(LIMIT, False), (LIMIT + 1, True)])
@pytest.mark.parametrize("is_stacked", [False, True])
def test_the_limit_is_that_of_one_tensor(
    own: TensorExchange, num_calls: int, num_bytes: int, is_stored: bool, is_stacked: bool
) -> None:
    column = np.zeros((num_calls, num_bytes), np.uint8)
    (header,), frames = own.outbox.write([column if is_stacked else list(column)])
    assert isinstance(header, StoredColumn) == is_stored
    assert len(frames) == (0 if is_stored else 1)
    assert own.outbox.num_copied_bytes == (num_calls * num_bytes if is_stored else 0)


def test_one_large_tensor_makes_its_whole_column_stored(own: TensorExchange) -> None:
    headers, frames = own.outbox.write([[np.zeros(1), np.zeros(100)], np.zeros((2, 3)), [np.zeros(1), np.zeros(2)]])
    assert [type(header) for header in headers] == [StoredColumn, Column, Column]
    assert (len(frames), own.arena.num_blocks) == (3, 1)


def test_tensors_of_one_shape_lie_one_behind_the_other(own: TensorExchange) -> None:
    headers, _ = own.outbox.write([[np.full(25, at, np.float64) for at in range(4)]])
    (part,) = parts_of(headers[0])
    assert (part.num_rows, part.num_bytes, part.shape, part.num_items, part.strides) == (4, 200, (25,), 25, None)
    assert part.offset % PAGE_BYTES == 0


def test_tensors_of_many_shapes_are_aligned(own: TensorExchange) -> None:
    headers, _ = own.outbox.write([[np.zeros(size, np.uint8) for size in (1, 200, 0, 65)]])
    parts = parts_of(headers[0])
    assert [part.offset % 64 for part in parts] == [0] * 4
    assert [part.num_bytes for part in parts] == [1, 200, 0, 65]
    assert len({part.block for part in parts}) == 1


def test_a_single_tensor_of_rank_0_can_be_stored(own: TensorExchange) -> None:
    assert own.outbox.store(np.array(1.5)).shape == ()


def check_refused(own: TensorExchange, columns: list[Array | list[Array]], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        own.outbox.write(columns)
    assert own.arena.num_blocks == 0, "the columns before were taken back"
    with pytest.raises(error, match=match):
        own.outbox.store(np.asarray(columns[-1])[0])
    assert own.arena.num_blocks == 0


def test_the_error_of_a_column_that_never_fits_names_the_sizes(own: TensorExchange) -> None:
    huge = np.zeros((1, 2**20), np.uint8)
    check_refused(
        own,
        [np.zeros((2, 99)), huge],
        TransportError,
        f"{2**20} bytes, the arena holds {own.arena.max_block_bytes} in all; raise DYORC_TRANSPORT__ARENA_BYTES$",
    )


def test_a_batch_that_never_fits_may_be_smaller(own: TensorExchange) -> None:
    with pytest.raises(TooLargeError, match=r"whole batch has .*ARENA_BYTES, or lower the program.s max_batch_size$"):
        own.outbox.write([np.zeros((4, 2**18), np.uint8)])


def test_what_the_folder_can_never_hold_is_refused_and_the_folder_named(
    own: TensorExchange, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena, "capacity_of", lambda _: 2**20)
    with Arena(str(tmp_path), 2**22) as small:
        outbox = Outbox(small, 0)
        assert small.max_block_bytes < 2**20
        with pytest.raises(TooLargeError, match=f"{tmp_path} holds {2**20} bytes in all: give it more .Docker: --shm-size;"):
            outbox.write([np.zeros((1, 2**20), np.uint8)])
        outbox.check_beside(600_000, 300_000)
        with pytest.raises(
            TooLargeError, match=r"no room for results of 600000 bytes next to inputs of 600000 bytes; .*--shm-size"
        ):
            outbox.check_beside(600_000, 600_000)


def test_the_error_of_a_column_that_does_not_fit_now_names_its_size(own: TensorExchange) -> None:
    columns = [np.zeros((1, 600_000), np.uint8)] * 2
    with pytest.raises(NoRoomError, match="no room for 600000 bytes") as caught:
        own.outbox.write(columns)
    assert caught.value.num_bytes == 600_000
    assert own.arena.num_blocks == 0
    own.outbox.write(columns[:1])


@pytest.mark.parametrize(
    ("share", "says"),
    [
        (1.0, "the arena had no room for 7 bytes within 5 s (transport.arena_wait_s): "),
        (1 / 12, "the arena had no room for 7 bytes within 0.417 s, this attempt's share of transport.arena_wait_s (5 s): "),
        (0.0, "the arena had no room for 7 bytes, and none was waited for, as the batch's requests have waited before: "),
    ],
)
def test_the_error_of_a_full_arena_says_which_part_of_the_wait_has_passed(share: float, says: str) -> None:
    assert NoRoomError(7, 9, "get more").within("the arena", 5.0, share) == f"{says}it holds 9 bytes in all; get more"


def test_values_that_are_not_texts_are_refused(own: TensorExchange) -> None:
    for bad in ([np.array(["x" * 200], object)], [np.array([b"x" * 200], object), np.array(["x"], object)]):
        with pytest.raises(TransportError, match="is str, expected bytes"):
            own.outbox.write([np.zeros((2, 99)), bad])
        assert own.arena.num_blocks == 0


def test_written_columns_can_be_taken_back(own: TensorExchange) -> None:
    headers, _ = own.outbox.write([np.zeros((2, 99)), [np.zeros(1), np.zeros(99)], np.zeros((2, 1))])
    assert own.arena.num_blocks == 2
    own.outbox.take_back(headers)
    assert own.arena.num_blocks == 0


def test_a_block_that_cannot_be_published_is_taken_back(own: TensorExchange, monkeypatch: pytest.MonkeyPatch) -> None:
    def publish(block: object) -> None:
        raise TransportError("closed")

    monkeypatch.setattr(own.arena, "publish", publish)
    column = np.zeros((2, 99))
    for act in (lambda: own.outbox.store(column), lambda: own.outbox.write([column])):
        with pytest.raises(TransportError, match="closed"):
            act()
        assert own.arena.num_blocks == 0
