"""Tensors that stay in shared memory: a consumer reads what the producer wrote, to the bit, through any views.

Whatever a peer says, a reader stays within the block that is named, and raises nothing but a `TransportError`.
"""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dyorc.core.arrays import Array, numpy_dtype, same_array
from dyorc.core.tensor import TENSOR_TYPES, DType
from dyorc.errors import TransportError
from dyorc.transport.column_codec import StoredColumn, StoredRows, check_stored, decode_stored
from dyorc.transport.messages import BatchReply, BatchRequest, encode
from dyorc.transport.tiers import TensorHolder
from tests.effort import examples
from tests.exchanges import NODE, Call, TensorPath, tensor_path
from tests.fuzz.link_messages import PeerMessages
from tests.property.test_views import by_numpy, indices
from tests.property.test_wire import limits, rows


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorPath]:
    """Opens three processes' ends of the tensor path, for all examples."""
    with tensor_path(str(tmp_path_factory.mktemp("arenas"))) as opened:
        yield opened
        opened.check_empty()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeerMessages]:
    """Yields what is fuzzed."""
    with tensor_path(str(tmp_path_factory.mktemp("fuzzed"))) as opened:
        yield PeerMessages(opened)


# What is read is what was written


@given(st.data(), rows(), limits)
def test_views_of_stored_tensors_are_those_of_numpy(
    path: TensorPath, data: st.DataObject, column: list[Array], limit: int
) -> None:
    views = [data.draw(st.lists(indices, max_size=2)) for _ in column]
    path.limit(limit)
    published = path.publish([column])
    calls, expected = list[Call](), list[Array]()
    for (tensor,), array, keys in zip(published, column, views, strict=True):
        for key in keys:
            seen = by_numpy(array, key)
            if seen is not None:
                tensor, array = tensor.view(key), seen
        calls.append((tensor,))
        expected.append(array)
    (delivered,) = path.deliver(calls)
    assert len(delivered) == len(expected)
    for before, after in zip(expected, delivered, strict=True):
        assert same_array(before, np.asarray(after))
    path.inbox.done()
    for before, call in zip(expected, calls, strict=True):
        assert same_array(before, np.asarray(path.tensors.read(call)[0]))
    path.release(published)


def test_an_empty_view_may_begin_anywhere(path: TensorPath) -> None:
    """NumPy counts its start like that of others, although there is no element that far."""
    path.limit(0)
    column: list[Array] = [np.zeros((2, 3), np.float32), np.zeros((0, 3), np.float32)]
    published = path.publish([column])
    calls = [(tensor.view((..., 2)),) for (tensor,) in published]
    (delivered,) = path.deliver(calls)
    assert [np.asarray(one).shape for one in delivered] == [(2,), (0,)]
    path.inbox.done()
    path.release(published)


@given(st.data(), st.integers(1, 4), limits)
def test_calls_of_two_batches_are_read_in_any_order(path: TensorPath, data: st.DataObject, num_calls: int, limit: int) -> None:
    """One of the batches may be stored while the other travels inline."""
    dtype = data.draw(st.sampled_from(list(TENSOR_TYPES)))
    one, other = (data.draw(rows(num_rows=num_calls, dtype=dtype)) for _ in range(2))
    order = data.draw(st.lists(st.integers(0, 2 * num_calls - 1), min_size=1, max_size=6))
    other_limit = data.draw(limits)
    path.limit(limit)
    calls = path.publish([one])
    path.limit(other_limit)
    calls += path.publish([other])
    (delivered,) = path.deliver([calls[at] for at in order])
    for at, after in zip(order, delivered, strict=True):
        assert same_array([*one, *other][at], np.asarray(after))
    path.inbox.done()
    path.release(calls)


@given(rows(), limits)
def test_inputs_of_requests_survive(path: TensorPath, column: list[Array], limit: int) -> None:
    path.limit(limit)
    calls = [path.tensors.keep_all([array]) for array in column]
    for before, call in zip(column, calls, strict=True):
        assert same_array(before, np.asarray(path.tensors.read(call)[0]))
    (delivered,) = path.deliver(calls)
    for before, after in zip(column, delivered, strict=True):
        assert same_array(before, np.asarray(after))
    path.inbox.done()
    path.release(calls)
    path.check_empty()


@pytest.mark.parametrize("dtype", list(TENSOR_TYPES))
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3)])
@pytest.mark.parametrize("is_stacked", [False, True])
def test_every_type_survives(path: TensorPath, dtype: DType, shape: tuple[int, ...], is_stacked: bool) -> None:
    path.limit(0)
    count = 3 * int(np.prod(shape))
    if dtype is DType.BYTES:
        flat = np.array([bytes([at, 0, 255]) * (at % 3) for at in range(count)] + [None], object)[:-1]
    else:
        flat = np.arange(count).astype(numpy_dtype(dtype))
    column = flat.reshape(3, *shape)
    calls = path.publish([column if is_stacked else [column[at, ...] for at in range(3)]])
    for at, after in enumerate(path.deliver(calls)[0]):
        assert same_array(column[at, ...], np.asarray(after))
    path.inbox.done()
    path.release(calls)


@given(st.sampled_from(list(TENSOR_TYPES)), st.data())
def test_nan_and_signed_zero_keep_their_bits(path: TensorPath, dtype: DType, data: st.DataObject) -> None:
    if dtype is not DType.BF16:
        dtype = DType.FP16
    bits = np.array(data.draw(st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=8)), np.uint16)
    array = bits.view(ml_dtypes.bfloat16 if dtype is DType.BF16 else np.float16)
    path.limit(0)
    calls = path.publish([[array]])
    assert same_array(array, np.asarray(path.deliver(calls)[0][0]))
    path.inbox.done()
    path.release(calls)


# Senseless messages are refused

sizes = st.integers(-3, 30) | st.sampled_from([2**31, 2**48, 2**48 + 1, 2**62, 2**63 - 1, 2**64 - 1, -(2**63)])
shapes = st.lists(sizes, max_size=4).map(tuple)


@st.composite
def hostile_rows(draw: st.DrawFn, target: PeerMessages) -> StoredRows:
    """Draws a valid piece of which some fields were changed."""
    true = draw(st.sampled_from([part for part in target.blocks if isinstance(part, StoredRows)]))
    near = st.integers(-200, 200)
    fields: dict[str, st.SearchStrategy[Any]] = {
        "holder": st.integers(-2, 2),
        "block": st.integers(true.block - 1, true.block + 1) | sizes,
        "offset": near.map(lambda by: true.offset + by) | sizes,
        "num_bytes": near.map(lambda by: true.num_bytes + by) | sizes,
        "shape": shapes,
        "num_rows": sizes,
        "num_items": near.map(lambda by: true.num_items + by) | sizes,
        "start": sizes,
        "strides": st.none() | st.lists(st.integers(-30, 30) | sizes, max_size=4).map(tuple),
    }
    changed = draw(st.lists(st.sampled_from(["offset", "num_rows"]) | st.sampled_from(sorted(fields)), max_size=3, unique=True))
    return msgspec.structs.replace(true, **{name: draw(fields[name]) for name in changed})


@settings(max_examples=examples(400))
@given(st.data())
def test_hostile_pieces_are_refused_or_read_within_their_block(target: PeerMessages, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([DType.FP32, DType.BYTES]) | st.sampled_from(list(TENSOR_TYPES)))
    parts = data.draw(st.lists(hostile_rows(target), min_size=1, max_size=3).map(tuple))
    producer = target.producer
    for holder in (producer, TensorHolder("producer", NODE, data.draw(st.text(max_size=40)))):
        try:
            header = encode(BatchRequest(1, (StoredColumn(dtype, parts),), (), (holder,)))
        except OverflowError:
            return
        target.take(header, [])
    target.take(encode(BatchReply("producer", 1, (StoredColumn(dtype, parts),), 0.1)), [])


@given(st.data())
def test_damaged_messages_are_refused_or_read_as_others(target: PeerMessages, data: st.DataObject) -> None:
    header, frames = data.draw(st.sampled_from(list(target.seeds())))
    damaged = [bytearray(part) for part in (header, *frames)]
    for _ in range(data.draw(st.integers(0, 3))):
        part = damaged[data.draw(st.integers(0, len(damaged) - 1))]
        if part:
            at = data.draw(st.integers(0, len(part) - 1))
            change = data.draw(st.sampled_from(["set", "cut", "put"]))
            if change == "set":
                part[at] = data.draw(st.integers(0, 255))
            elif change == "cut":
                del part[at:]
            else:
                part[at:at] = data.draw(st.binary(max_size=9))
    target.take(bytes(damaged[0]), [bytes(part) for part in damaged[1:]])


def test_undamaged_messages_are_accepted(target: PeerMessages) -> None:
    for header, frames in target.seeds():
        target.take(header, frames, is_refusal_a_failure=True)


@given(
    st.sampled_from(list(TENSOR_TYPES)),
    st.builds(
        StoredRows,
        st.just(0),
        st.just(1),
        st.just(0),
        sizes,
        shapes,
        sizes,
        sizes,
        sizes,
        st.none() | st.lists(sizes, max_size=4).map(tuple),
    ),
    st.binary(max_size=64),
)
@example(DType.FP32, StoredRows(0, 1, 0, 8, (2**48, 2**48, 0), 1, 0, 0, (0, 0, 0)), bytes(8))
@example(DType.FP32, StoredRows(0, 1, 0, 0, (2**48, 2**48, 0), 1, 0), b"")
@example(DType.FP32, StoredRows(0, 1, 0, 0, (2**48, 2**48, 0), 1, 0, 0, (0, 0, 0)), b"")
@example(DType.FP32, StoredRows(0, 1, 0, 4, (2**40,), 1, 1, 0, (0,)), bytes(4))
@example(DType.FP32, StoredRows(0, 1, 0, 4, (1,) * 64, 1, 1), bytes(4))
@example(DType.FP32, StoredRows(0, 1, 0, 8, (2,), 1, 2, 1, (-1,)), bytes(8))
@example(DType.FP32, StoredRows(0, 1, 0, 8, (2,), 1, 2, 0, (-1,)), bytes(8))
@example(DType.FP32, StoredRows(0, 1, 0, 8, (2,), 1, 2, 1, (1,)), bytes(8))
@example(DType.BYTES, StoredRows(0, 1, 0, 4, (1,), 1, 1, 0, (7,)), bytes(4))
def test_pieces_are_checked_before_they_are_decoded(dtype: DType, part: StoredRows, raw: bytes) -> None:
    try:
        check_stored(dtype, part)
        decoded = decode_stored(dtype, part, memoryview(raw))
    except TransportError:
        return  # any other error fails the test
    num_items = len(raw) // numpy_dtype(dtype).itemsize if dtype is not DType.BYTES else part.num_items
    for array in decoded:
        assert np.asarray(array).size <= num_items, "a view shows no element twice"
        if np.asarray(array).size and dtype is not DType.BYTES:
            low, high = np.lib.array_utils.byte_bounds(np.asarray(array))
            start = np.frombuffer(raw, np.uint8).ctypes.data
            assert start <= low <= high <= start + len(raw)
