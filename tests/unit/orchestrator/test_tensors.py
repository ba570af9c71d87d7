"""The orchestrator's references: where inputs are put, what a batch's message says, and that no block is left over."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from dyorc.answering.tensor_exchange import OWN, Tensors
from dyorc.core.arrays import Array, same_array
from dyorc.core.tensor import DType, TensorRef
from dyorc.errors import CapacityError, InvalidInputError, PayloadTooLargeError, TransportError
from dyorc.transport.arena import ArenaBody
from dyorc.transport.column_codec import MAX_ROWS, Column, StoredColumn, StoredRows
from dyorc.transport.inbox import Inbox, InputsLostError
from dyorc.transport.messages import BatchRequest, encode
from dyorc.transport.tensor_path import TensorExchange
from dyorc.transport.tier_routes import Routes
from dyorc.transport.tiers import TensorHolder
from tests.exchanges import ARENA_BYTES, FAR, NODE, CopyingTier, TensorPath, exchange, tensor_path

LIMIT = 64


@pytest.fixture
def own(tmp_path: Path) -> Iterator[TensorExchange]:
    """Makes the orchestrator's end of the path."""
    with exchange(str(tmp_path), OWN, inline_limit_bytes=LIMIT) as opened:
        yield opened


@pytest.fixture
def tensors(own: TensorExchange) -> Tensors:
    """Makes references to tensors in its arena."""
    opened = Tensors(own)
    opened.open()
    return opened


@pytest.fixture
def path(tmp_path: Path) -> Iterator[TensorPath]:
    """Opens a tensor path that stores every tensor."""
    with tensor_path(str(tmp_path)) as opened:
        yield opened


def body_with(tensors: Tensors, array: Array, lead: int) -> tuple[ArenaBody, Array]:
    """Makes a body of `lead` bytes and an array, with a view of the array in it."""
    body = tensors.body(lead + array.nbytes, lead)
    body.memory[lead:] = array.tobytes()
    return body, np.frombuffer(body.memory[lead:], array.dtype).reshape(array.shape)


# Bodies


@pytest.mark.parametrize("lead", [0, 1, 7, 63, 64, 65, 1000])
def test_a_large_input_stays_where_the_body_was_received(own: TensorExchange, tensors: Tensors, lead: int) -> None:
    sent = np.arange(100, dtype=np.float64)
    body, array = body_with(tensors, sent, lead)
    assert array.ctypes.data % 64 == 0
    (tensor,) = tensors.keep_all([array], body)
    assert (tensor.holder, tensor.block, tensor.node) == (OWN, body.block.block_id, NODE)
    assert own.outbox.num_copied_bytes == 0
    tensors.drop(body)
    assert own.arena.num_blocks == 1, "a tensor lies in it"
    assert same_array(tensors.read([tensor])[0], sent)
    tensors.free([(OWN, tensor.block)])
    assert own.arena.num_blocks == 0


def test_an_input_that_is_not_aligned_or_not_together_is_copied(own: TensorExchange, tensors: Tensors) -> None:
    sent = np.arange(200, dtype=np.float64)
    for lead, step in ((4, 1), (0, 2)):
        body = tensors.body(lead + sent.nbytes, 0)
        body.memory[lead:] = sent.tobytes()
        array = np.frombuffer(body.memory[lead:], np.float64)[::step]
        (tensor,) = tensors.keep_all([array], body)
        assert not body.is_used
        tensors.drop(body)
        assert same_array(tensors.read([tensor])[0], sent[::step])
        tensors.free([(tensor.holder, tensor.block)])
    assert own.arena.num_blocks == 0


def test_an_array_outside_of_the_body_is_copied(own: TensorExchange, tensors: Tensors) -> None:
    body = tensors.body(100, 0)
    for array in (np.arange(200.0), np.frombuffer(own.arena.allocate(2000).memory, np.float64)):  # pyright: ignore
        (tensor,) = tensors.keep_all([array], body)
        assert tensor.block != body.block.block_id
        assert same_array(tensors.read([tensor])[0], array)


def test_small_inputs_travel_inline_and_outlive_the_body(own: TensorExchange, tensors: Tensors) -> None:
    sent = np.arange(LIMIT // 8, dtype=np.int64)
    body, array = body_with(tensors, sent, 3)
    (tensor,) = tensors.keep_all([array], body)
    assert tensor.block == 0
    body.memory[:] = b"\xff" * len(body.memory)
    tensors.drop(body)
    assert same_array(tensors.read([tensor])[0], sent)
    assert own.arena.num_blocks == 0


def test_texts_are_stored_or_travel_inline_by_their_length(own: TensorExchange, tensors: Tensors) -> None:
    short, long = np.array([b"a", b""], object), np.array([b"b" * LIMIT, b"\xff\x00"], object)
    refs = tensors.keep_all([short, long])
    assert [bool(tensor.block) for tensor in refs] == [False, True]
    for before, after in zip((short, long), tensors.read(refs), strict=True):
        assert same_array(before, after)


def test_a_body_may_be_empty(own: TensorExchange, tensors: Tensors) -> None:
    body = tensors.body(0, 0)
    assert body.offset_of(np.zeros(3)) is None
    tensors.drop(body)
    assert own.arena.num_blocks == 0


# All or none


@pytest.mark.parametrize("is_in_body", [False, True])
@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (np.zeros(ARENA_BYTES // 10), CapacityError),
        (np.zeros(ARENA_BYTES), PayloadTooLargeError),
        (np.zeros(100, np.complex128), InvalidInputError),
        (np.array(["text" * LIMIT], object), TransportError),
    ],
    ids=["no room", "too large", "no type", "no bytes"],
)
def test_a_request_whose_inputs_cannot_all_be_kept_keeps_none(
    own: TensorExchange, tensors: Tensors, is_in_body: bool, bad: Array, error: type[Exception]
) -> None:
    block = own.arena.allocate(own.arena.max_block_bytes - ARENA_BYTES // 2)
    assert block is not None
    body, array = body_with(tensors, np.arange(1000.0), 1)
    with pytest.raises(error):
        tensors.keep_all([np.arange(100.0), array, bad], body if is_in_body else None)
    assert own.arena.num_blocks == 2
    tensors.drop(body)
    assert own.arena.num_blocks == 1


def test_a_body_without_room_is_a_capacity_error(own: TensorExchange, tensors: Tensors) -> None:
    block = own.arena.allocate(ARENA_BYTES // 2)
    assert block is not None
    with pytest.raises(CapacityError, match=f"no room now for the request's {ARENA_BYTES // 2} bytes"):
        tensors.body(ARENA_BYTES // 2, 0)
    assert own.arena.num_blocks == 1


def test_inputs_larger_than_the_arena_are_refused_for_good_with_both_sizes(own: TensorExchange, tensors: Tensors) -> None:
    limit = own.arena.max_block_bytes
    with pytest.raises(PayloadTooLargeError, match=f"take {ARENA_BYTES} bytes of shared memory, the server has {limit}"):
        tensors.body(ARENA_BYTES, 0)
    half = np.zeros(limit // 2 + 1, np.uint8)
    with pytest.raises(PayloadTooLargeError, match=f"the server has {limit}") as caught:
        tensors.keep_all([half, half])
    assert not caught.value.retryable
    with pytest.raises(PayloadTooLargeError):
        tensors.keep_all([np.array([b"text" * ARENA_BYTES], object)])
    body, array = body_with(tensors, half, 1)
    with pytest.raises(PayloadTooLargeError):
        tensors.keep_all([array, half], body)
    with pytest.raises(CapacityError):
        tensors.keep_all([half])
    tensors.drop(body)
    assert own.arena.num_blocks == 0
    (kept,) = tensors.keep_all([half])
    assert kept.block


def test_only_its_own_blocks_are_freed(own: TensorExchange, tensors: Tensors) -> None:
    kept, other = tensors.keep(np.arange(100.0)), tensors.keep(np.arange(100.0))
    tensors.free([("a", other.block), (OWN, kept.block), ("b", 2)])
    assert own.arena.num_blocks == 1
    with pytest.raises(InputsLostError):
        tensors.read([kept])


# Batches


def huge(holder: str, row: int, num_bytes: int = 8 * 2**20, block: int = 7) -> TensorRef:
    """Makes a tensor that is claimed to lie behind others of its length."""
    shape = (num_bytes // 4,)
    return TensorRef(
        dtype=DType.FP32, shape=shape, num_bytes=num_bytes, node=NODE, holder=holder, block=block, offset=row * num_bytes
    )


def test_neighbours_become_one_piece_and_the_message_stays_small(tensors: Tensors) -> None:
    tensors.join(TensorHolder("a", NODE, "arena-a"))
    headers, frames, holders = tensors.pack([(huge("a", row),) for row in range(32)])
    (column,) = headers
    assert isinstance(column, StoredColumn)
    (part,) = column.parts
    assert isinstance(part, StoredRows)
    assert (part.num_rows, part.num_items, part.shape) == (32, 2**21, (2**21,))
    assert (frames, [holder.holder_id for holder in holders]) == ([], ["a"])
    assert len(encode(BatchRequest(1, tuple(headers), (), holders))) < 200


def test_the_message_of_a_batch_from_everywhere_stays_small(tensors: Tensors) -> None:
    """The worst case of 32 calls: no two neighbours, and each seen through a view."""
    for name in "abcd":
        tensors.join(TensorHolder(name, NODE, f"arena-{name}"))
    operands = [(huge("abcd"[row % 4], row).view((slice(None, None, 2),)),) for row in range(32)]
    headers, frames, holders = tensors.pack(operands)
    assert (len(headers[0].parts), frames, len(holders)) == (32, [], 4)  # pyright: ignore[reportAttributeAccessIssue]
    assert len(encode(BatchRequest(1, tuple(headers), (), holders))) < 10_000


@pytest.mark.parametrize(
    "second",
    [
        huge("a", 2),
        huge("a", 1, block=8),
        huge("b", 1),
        msgspec.structs.replace(huge("a", 1), shape=(2**20, 2)),
        huge("a", 1).view((slice(0, 4),)),
    ],
    ids=["gap", "other block", "other holder", "other shape", "view"],
)
def test_a_tensor_that_only_looks_like_a_neighbour_is_a_piece_of_its_own(tensors: Tensors, second: TensorRef) -> None:
    for name in "ab":
        tensors.join(TensorHolder(name, NODE, f"arena-{name}"))
    headers, _, _ = tensors.pack([(huge("a", 0),), (second,)])
    assert len(headers[0].parts) == 2  # pyright: ignore[reportAttributeAccessIssue]


def test_the_error_names_a_holder_that_left(path: TensorPath) -> None:
    calls = path.publish([np.arange(2000.0).reshape(2, 1000)])
    path.tensors.leave("producer")
    for act in (lambda: path.tensors.pack(calls), lambda: path.tensors.read(calls[0])):
        with pytest.raises(InputsLostError, match="'producer' is gone") as caught:
            act()
        assert caught.value.blocks == (("producer", calls[0][0].block),)
    path.tensors.leave("producer")


def test_the_error_names_a_block_that_was_released(path: TensorPath) -> None:
    calls = path.publish([np.arange(2000.0).reshape(2, 1000)])
    path.release(calls)
    with pytest.raises(InputsLostError) as caught:
        path.tensors.read(calls[0])
    assert caught.value.blocks == (("producer", calls[0][0].block),)


def test_rows_and_all_between_are_read_in_their_order(path: TensorPath) -> None:
    rows, texts = np.arange(4000.0).reshape(4, 1000), np.array([[b"a", b"bcd"], [b"", b"e"]], object)
    numbers, words = path.publish([rows]), path.publish([texts])
    inline = path.tensors.refs("producer", [Column(DType.INT64, ((2,),), 1)], [np.array([[7, 8]]).tobytes()])[0][0]
    viewed = numbers[1][0].view((slice(None, None, 3),))
    tensors = [
        numbers[3][0],
        words[0][0],
        numbers[0][0],
        numbers[1][0],
        inline,
        viewed,
        words[1][0],
        numbers[2][0],
        numbers[0][0],
    ]
    expected = [rows[3], texts[0], rows[0], rows[1], np.array([7, 8]), rows[1][::3], texts[1], rows[2], rows[0]]
    read = path.tensors.read(tensors)
    assert len(read) == len(expected)
    assert all(same_array(one, other) for one, other in zip(read, expected, strict=True))


def test_rows_of_another_node_are_fetched_at_once(path: TensorPath, tmp_path: Path) -> None:
    rows = np.arange(64_000.0).reshape(64, 1000)
    calls = path.publish([rows])
    path.tensors.leave("producer")
    path.tensors.join(msgspec.structs.replace(path.producer.holder, node=FAR))
    tier = CopyingTier(str(tmp_path))
    inbox = Inbox(Routes([], [tier]), is_writing=False)
    read = path.tensors.read([tensor for (tensor,) in calls], inbox)
    assert tier.num_fetches == 1
    assert same_array(np.stack(read), rows)


# What replicas claim

whole = StoredRows(0, 1, 4096, 8, (2,), 1, 2)


@pytest.mark.parametrize(
    "columns",
    [
        (StoredColumn(DType.FP32, (msgspec.structs.replace(whole, strides=(1,)),)),),
        (StoredColumn(DType.FP32, (msgspec.structs.replace(whole, block=0),)),),
        (StoredColumn(DType.FP32, (msgspec.structs.replace(whole, offset=-1),)),),
        (StoredColumn(DType.FP32, (msgspec.structs.replace(whole, offset=2**63),)),),
        (StoredColumn(DType.FP32, (msgspec.structs.replace(whole, shape=(3,)),)),),
        (StoredColumn(DType.FP64, (whole,)),),
        (StoredColumn(DType.FP32, (msgspec.structs.replace(whole, num_rows=0),)),),
        (StoredColumn(DType.FP32, (StoredRows(0, 1, 4096, 0, (0,), MAX_ROWS, 0),) * 2),),
        (StoredColumn(DType.FP32, (whole,)), StoredColumn(DType.FP32, (whole, whole))),
        (StoredColumn(DType.FP32, (whole, Column(DType.FP32, ()))),),
    ],
)
def test_inconsistent_claims_are_refused(tensors: Tensors, columns: tuple[StoredColumn, ...]) -> None:
    tensors.join(TensorHolder("a", NODE, "arena-a"))
    with pytest.raises(TransportError):
        tensors.refs("a", columns, [])


def test_an_unknown_replica_is_refused(tensors: Tensors) -> None:
    with pytest.raises(TransportError, match="'nobody', which is not known"):
        tensors.refs("nobody", [StoredColumn(DType.FP32, (whole,))], [])


def test_inline_tensors_cannot_be_written_to(path: TensorPath) -> None:
    path.limit(2**20)
    ((tensor,), _) = path.publish([np.zeros((2, 3))])
    assert not tensor.data.flags.writeable
