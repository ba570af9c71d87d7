"""Tensors and messages survive the wire to the bit; anything else that comes over it is a `TransportError`."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dyorc.core.arrays import numpy_dtype, same_array
from dyorc.core.tensor import TENSOR_TYPES, DType
from dyorc.errors import TransportError
from dyorc.protocol.raw import decode_bytes, encode_bytes
from dyorc.transport.column_codec import Column, StoredColumn, StoredRows, decode_column, encode_column, num_frames
from dyorc.transport.messages import (
    PROTOCOL_VERSION,
    BatchFailure,
    BatchReply,
    BatchRequest,
    Forget,
    InputsLost,
    LoadFailure,
    Loading,
    Message,
    Park,
    Parked,
    ReleaseBlocks,
    ReplicaHello,
    ReplicaWelcome,
    StageSpans,
    UnstageTensors,
    Warm,
    decode,
    encode,
)
from dyorc.transport.tiers import ByteSpan, TensorHolder
from tests.exchanges import NODE, TensorPath, tensor_path

limits = st.sampled_from([0, 4, 8, 24, 2**20])
"""Up to which size tensors travel inline: none, scalars, some, all."""

shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def arrays_of(dtype: DType, shape: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    """Draws any bits at all: NaNs and signed zeros must survive, too."""
    if dtype is DType.BYTES:
        return hnp.arrays(object, shape, elements=st.binary(max_size=6), fill=st.nothing())
    if dtype is DType.BOOL:
        return hnp.arrays(np.bool_, shape)
    plain = np.dtype(f"u{numpy_dtype(dtype).itemsize}")
    return hnp.arrays(plain, shape).map(lambda array: array.view(numpy_dtype(dtype)))


@st.composite
def rows(
    draw: st.DrawFn, *, is_uniform: bool | None = None, num_rows: int | None = None, dtype: DType | None = None
) -> list[np.ndarray]:
    """Draws a column as a list of arrays of one type; of one shape if `is_uniform`. Some are strided."""
    dtype = dtype or draw(st.sampled_from(list(TENSOR_TYPES)))
    if is_uniform is None:
        is_uniform = draw(st.booleans())
    shape = draw(shapes)
    found = []
    for _ in range(num_rows or draw(st.integers(1, 4))):
        array = draw(arrays_of(dtype, shape if is_uniform else draw(shapes)))
        if draw(st.booleans()):
            array = array.T if not is_uniform else np.asarray(array, order="F")
        if array.ndim and draw(st.booleans()) and not is_uniform:
            array = array[::-2]
        found.append(array)
    return found


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorPath]:
    """Opens three processes' ends of the tensor path, for all examples."""
    with tensor_path(str(tmp_path_factory.mktemp("arenas"))) as opened:
        yield opened
        opened.check_empty()


def frames_of(frames: list[Any]) -> list[bytes]:
    return [bytes(frame) for frame in frames]


@given(rows())
@example([np.zeros((0, 3), np.float32)])
@example([np.array(1.5, ml_dtypes.bfloat16), np.array(-0.0, ml_dtypes.bfloat16)])
def test_a_list_of_arrays_survives(column: list[np.ndarray]) -> None:
    header, frames = encode_column(column)
    decoded = decode_column(msgspec.msgpack.decode(msgspec.msgpack.encode(header), type=Column), frames_of(frames))
    assert len(decoded) == len(column)
    for before, after in zip(column, decoded, strict=True):
        assert same_array(before, np.asarray(after))


@given(rows(is_uniform=True))
def test_a_stacked_column_survives(column: list[np.ndarray]) -> None:
    stacked = np.stack(column)
    header, frames = encode_column(stacked)
    decoded = decode_column(header, frames_of(frames))
    assert len(decoded) == len(stacked)
    for at, after in enumerate(decoded):
        assert same_array(stacked[at, ...], np.asarray(after))


@pytest.mark.parametrize("size", [2**14, 2**14 + 1, 2**16])
def test_rows_just_below_and_above_the_joined_size_survive(size: int) -> None:
    column = [np.arange(size, dtype=np.float32) + at for at in range(3)]
    header, frames = encode_column(column)
    assert len(frames) == (1 if size * 4 <= 2**16 else 3)
    for before, after in zip(column, decode_column(header, frames_of(frames)), strict=True):
        assert same_array(before, after)


@given(st.data(), st.integers(1, 4), limits)
def test_all_columns_of_a_batch_survive(path: TensorPath, data: st.DataObject, num_calls: int, limit: int) -> None:
    columns = data.draw(st.lists(rows(num_rows=num_calls), min_size=1, max_size=3))
    path.limit(limit)
    calls = path.publish(columns)
    for before, after in zip(columns, path.deliver(calls), strict=True):
        assert all(same_array(a, np.asarray(b)) for a, b in zip(before, after, strict=True))
    path.inbox.done()
    path.release(calls)
    path.check_empty()


texts = st.text(max_size=8)
ids = st.integers(0, 2**40)
any_shapes = st.lists(st.lists(st.integers(0, 9)).map(tuple), max_size=3).map(tuple)
column_headers = st.builds(Column, st.sampled_from(list(TENSOR_TYPES)), any_shapes, st.integers(0, 9))
anything = st.integers(-(2**63), 2**64 - 1)
spans = st.builds(ByteSpan, anything, anything, anything)
holders = st.builds(TensorHolder, texts, texts, texts, texts, texts, st.none() | spans)
strides = st.none() | st.lists(st.integers(-9, 9), max_size=3).map(tuple)
stored_rows = st.builds(
    StoredRows, ids, anything, anything, ids, st.lists(ids, max_size=3).map(tuple), ids, ids, anything, strides
)
stored_columns = st.builds(
    StoredColumn, st.sampled_from(list(TENSOR_TYPES)), st.lists(column_headers | stored_rows, max_size=3).map(tuple)
)
column_tuples = st.lists(column_headers | stored_columns, max_size=3).map(tuple)
block_ids = st.lists(st.tuples(texts, anything), max_size=3).map(tuple)
statics = st.lists(st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | texts, max_size=3).map(tuple)
messages = (
    st.builds(ReplicaHello, texts, texts, ids, holders)
    | st.builds(LoadFailure, texts, texts, texts, texts)
    | st.builds(Loading, texts, texts)
    | st.builds(BatchRequest, ids, column_tuples, statics, st.lists(holders, max_size=2).map(tuple))
    | st.builds(BatchReply, texts, ids, column_tuples, st.floats(allow_nan=False))
    | st.builds(BatchFailure, texts, ids, texts, texts, texts, st.booleans())
    | st.builds(InputsLost, texts, ids, block_ids, texts)
    | st.builds(ReplicaWelcome)
    | st.builds(ReleaseBlocks, st.lists(anything, max_size=3).map(tuple))
    | st.builds(Forget, texts)
    | st.builds(StageSpans, holders, st.lists(spans, max_size=3).map(tuple))
    | st.builds(UnstageTensors, block_ids)
    | st.builds(Parked, texts, texts, ids, holders)
    | st.builds(Warm)
    | st.builds(Park)
)


@given(messages)
def test_a_message_survives(message: Message) -> None:
    decoded = decode(encode(message))
    assert decoded == message
    assert type(decoded) is type(message)


@given(st.binary(max_size=64))
@example(b"")
@example(b"\x91" * 100_000)
@example(encode(Loading("a", "b")).replace(b"a", b"\xff"))
def test_a_garbage_header_is_refused(garbage: bytes) -> None:
    with suppress(TransportError):  # any other error fails the test
        decode(garbage)


@given(messages, st.data())
def test_a_damaged_header_is_refused_or_another_message(message: Message, data: st.DataObject) -> None:
    damaged = bytearray(encode(message))
    at = data.draw(st.integers(0, len(damaged) - 1))
    if data.draw(st.booleans()):
        damaged[at] = data.draw(st.integers(0, 255))
    else:
        del damaged[at:]
    with suppress(TransportError):  # any other error fails the test
        decode(bytes(damaged))


sizes = st.integers(-2, 5) | st.sampled_from([2**31, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)])
hostile_columns = st.builds(
    Column,
    st.sampled_from(list(TENSOR_TYPES)),
    st.lists(st.lists(sizes, max_size=5).map(tuple), max_size=3).map(tuple),
    st.integers(-2, 3) | st.just(2**63 - 1),
)


def wire_bytes(array: np.ndarray) -> int:
    return len(encode_bytes(array)) if array.dtype == object else array.nbytes


@given(hostile_columns, st.lists(st.binary(max_size=16), max_size=3))
@example(Column(DType.FP32, (), 1), [])
@example(Column(DType.FP32, ((0,),), -1), [b""])
@example(Column(DType.FP32, ((2**63, 0),)), [b""])
@example(Column(DType.FP32, ((1,) * 70,)), [b"\0" * 4])
@example(Column(DType.BYTES, ((2**63, 0),)), [b""])
@example(Column(DType.BYTES, ((2**48, 2**48, 0),)), [b""])
@example(Column(DType.FP32, ((2**48, 2**48, 0),)), [b""])
@example(Column(DType.FP32, ((1,), (2,)), 1), [b"\0" * 4, b"\0" * 8])
def test_frames_that_do_not_fit_their_header_are_refused(column: Column, frames: list[bytes]) -> None:
    try:
        decoded = decode_column(column, frames)
    except TransportError:
        return  # any other error fails the test
    num_bytes = decoded.nbytes if isinstance(decoded, np.ndarray) else sum(map(wire_bytes, decoded))
    assert num_bytes == sum(map(len, frames)), "every byte that came is in some array"


@given(rows(), st.data())
def test_a_frame_of_another_length_is_refused(column: list[np.ndarray], data: st.DataObject) -> None:
    header, frames = encode_column(column)
    changed = frames_of(frames)
    at = data.draw(st.integers(0, len(changed) - 1))
    if data.draw(st.booleans()):
        changed[at] += b"\0"
    else:
        assume(changed[at])
        changed[at] = changed[at][:-1]
    with pytest.raises(TransportError):
        decode_column(header, changed)


@given(st.data(), st.booleans(), limits)
def test_missing_and_left_over_frames_are_refused(path: TensorPath, data: st.DataObject, is_missing: bool, limit: int) -> None:
    columns = data.draw(st.lists(rows(num_rows=2), min_size=1, max_size=2))
    path.limit(limit)
    headers, frames = path.producer.outbox.write(columns)
    calls = path.tensors.refs("producer", headers, frames_of(frames))
    assert sum(map(num_frames, headers)) == len(frames)
    is_missing = is_missing and bool(frames)
    changed = frames_of(frames)[:-1] if is_missing else [*frames_of(frames), b""]
    with pytest.raises(TransportError, match=f"announces {len(frames)} frames and has {len(changed)}"):
        path.inbox.read(headers, changed, [path.producer.holder])
    with pytest.raises(TransportError, match=f"frames and has {len(changed)}"):
        path.tensors.refs("producer", headers, changed)
    path.release(calls)


@given(st.binary(max_size=40), shapes)
def test_garbage_bytes_elements_are_refused(frame: bytes, shape: tuple[int, ...]) -> None:
    try:
        array = decode_bytes(frame, shape)
    except TransportError:
        return  # any other error fails the test
    assert array.shape == shape
    assert encode_bytes(array) == frame


def test_another_version_is_refused() -> None:
    with pytest.raises(TransportError, match=f"speaks version 99, expected {PROTOCOL_VERSION}"):
        decode(encode(ReplicaHello("id", "program", 1, TensorHolder("id", NODE, "arena"), version=99)))


@pytest.mark.parametrize("limit", [0, 2**20])
@pytest.mark.parametrize("size", [2, 3])
def test_a_column_of_mixed_types_is_refused(path: TensorPath, limit: int, size: int) -> None:
    path.limit(limit)
    with pytest.raises(TransportError, match="mixes float32 with other types"):
        path.producer.outbox.write([[np.zeros(2, np.float32), np.zeros(size, np.float64)]])
    path.check_empty()
