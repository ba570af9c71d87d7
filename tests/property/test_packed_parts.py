"""Parts that are sent together arrive as those sent one by one."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyorc.core.arrays import same_array
from dyorc.core.tensor import DType, TensorRef
from dyorc.errors import TransportError
from dyorc.transport.message_packing import MAX_PACKED, MAX_PACKED_BYTES, join_rows, pack, unpack
from dyorc.transport.messages import Cancel, Packed, PartFeed, PartGrant, decode, encode
from tests.exchanges import TensorPath, tensor_path
from tests.property.test_wire import limits, rows


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorPath]:
    """Opens three processes' ends of the tensor path, for all examples."""
    with tensor_path(str(tmp_path_factory.mktemp("arenas"))) as opened:
        yield opened
        opened.check_empty()


def read(path: TensorPath, calls: Sequence[tuple[TensorRef, ...]]) -> list[list[np.ndarray]]:
    return [[np.array(array) for array in path.tensors.read(call)] for call in calls]


@given(st.data(), st.integers(1, 4), limits)
def test_joined_rows_are_the_rows(path: TensorPath, data: st.DataObject, num_rows: int, limit: int) -> None:
    columns = data.draw(st.lists(rows(num_rows=num_rows), min_size=1, max_size=2))
    path.limit(limit)
    parts = [path.producer.outbox.write([[array] for array in row]) for row in zip(*columns, strict=True)]
    parts = [(headers, [bytes(frame) for frame in frames]) for headers, frames in parts]
    joined = join_rows(parts)
    apart = [call for headers, frames in parts for call in path.tensors.refs("producer", headers, frames)]
    if joined is None:
        kinds = [{bool(call[at].block) for call in apart} for at in range(len(columns))]
        assert {True, False} in kinds, "only rows of which some lie in shared memory stay apart"
    else:
        together = path.tensors.refs("producer", *joined)
        for before, after in zip(read(path, apart), read(path, together), strict=True):
            assert all(same_array(*pair) for pair in zip(before, after, strict=True))
    path.release(apart)


def test_parts_of_other_types_stay_apart(path: TensorPath) -> None:
    path.limit(100)
    outbox = path.producer.outbox
    assert join_rows([outbox.write([[np.zeros(2, np.float32)]]), outbox.write([[np.zeros(2, np.int32)]])]) is None


@given(st.lists(st.integers(0, 3 * MAX_PACKED_BYTES // 4), max_size=8))
def test_packed_messages_keep_their_order_and_frames(lengths: list[int]) -> None:
    sent = [(PartFeed(at, 0, at, 1), [bytes([at]) * length]) for at, length in enumerate(lengths)]
    messages = list(pack(sent))
    for message in messages:
        assert len(message) == 2 or sum(map(len, message[1:])) <= MAX_PACKED_BYTES
    assert len(messages) <= 1 + 2 * sum(lengths) // MAX_PACKED_BYTES
    received = [each for frames in messages for each in unpack(decode(frames[0]), frames[1:])]
    assert [(message, list(frames)) for message, frames in received] == sent


def test_a_message_holds_so_many_and_no_more() -> None:
    assert [len(list(pack([(PartGrant(1, 2), ())] * number))) for number in (0, 1, MAX_PACKED, MAX_PACKED + 1)] == [0, 1, 1, 2]
    assert list(pack([(PartGrant(1, 2), ())])) == [[encode(PartGrant(1, 2))]], "one alone is not wrapped"


@pytest.mark.parametrize(("counts", "num_frames"), [((), 0), ((1,), 1), ((2, 0), 1), ((1, 1, 0), 2), ((3, -1), 2), ((0, 1), 2)])
def test_packed_messages_with_other_frames_than_they_say_are_refused(counts: tuple[int, ...], num_frames: int) -> None:
    with pytest.raises(TransportError, match="2 packed messages announce"):
        unpack(Packed((Cancel(1), PartFeed(2, 0, 0, 1)), counts), [b"1"] * num_frames)


def test_texts_and_arrays_of_any_shape_share_a_message(path: TensorPath) -> None:
    path.limit(100)
    outbox = path.producer.outbox
    texts = [np.array([text], object) for text in (b"a", b"", b"long")]
    shapes = [np.zeros(size, np.float32) for size in (1, 0, 3)]
    joined = join_rows([outbox.write([[text], [array]]) for text, array in zip(texts, shapes, strict=True)])
    assert joined is not None
    headers, frames = joined
    assert [header.dtype for header in headers] == [DType.BYTES, DType.FP32]
    calls = path.tensors.refs("producer", headers, [bytes(frame) for frame in frames])
    assert [(call[0].data.tolist(), call[1].shape) for call in calls] == [([b"a"], (1,)), ([b""], (0,)), ([b"long"], (3,))]
