"""How many times a tensor is copied on its way from program to program, and that writing to inputs affects nobody else."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float

import dyorc
from dyorc.authoring.program import Program
from dyorc.core.arrays import Array
from dyorc.replica.batch_results import BatchResult
from dyorc.replica.executor import ProgramExecutor
from dyorc.transport.column_codec import Rows, StoredColumn
from dyorc.transport.inbox import BatchBuffers, Inbox
from dyorc.transport.tier_routes import Routes
from dyorc.transport.tiers import ByteSpan
from dyorc.transport.view_tiers import SharedMemoryTier
from tests.exchanges import FAR, Call, CopyingTier, TensorPath, exchange, tensor_path

SIZE = 2048
ROW_BYTES = 4 * SIZE


@dyorc.program(max_batch_size=8)
def look(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    return x


@dyorc.program(max_batch_size=8, pad=dyorc.pad(n=(SIZE, 2 * SIZE), value=7.0))
def look_padded(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    return x


@dyorc.program(max_batch_size=8)
def add_in_numpy(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    x += 1
    return x


@dyorc.program(max_batch_size=8)
def add_in_torch(x: Float[torch.Tensor, "batch n"]) -> Float[torch.Tensor, "batch n"]:
    return x.add_(1)


@dyorc.program(max_batch_size=8)
def add_to_first(x: Float[np.ndarray, "batch n"], y: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    x += 1
    return y


@dyorc.program(max_batch_size=8)
def add_to_second(x: Float[np.ndarray, "batch n"], y: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    y += 1
    return x


@pytest.fixture
def path(tmp_path: Path) -> Iterator[TensorPath]:
    """Opens a tensor path that stores every tensor, whatever its size."""
    with tensor_path(str(tmp_path)) as opened:
        yield opened
        opened.check_empty()


def numbers(num_calls: int, first: int = 0, size: int = SIZE) -> Array:
    """Returns a batch of `num_calls` rows that all differ."""
    return np.arange(first, first + num_calls * size, dtype=np.float32).reshape(num_calls, size)


class Watched:
    """A program that notes what it gets: the array itself, and its values at that time."""

    def __init__(self, program: Program) -> None:
        self.executor = ProgramExecutor.load(program)
        self.executor.reuse_memory()
        self.seen: list[Any] = []
        self.values: list[Array] = []
        self._function = self.executor._function
        self.executor._function = self._call

    def _call(self, **inputs: Any) -> Any:
        for value in inputs.values():
            array = np.asarray(value)
            self.seen.append(array)
            self.values.append(array.copy())
        return self._function(**inputs)

    def run(self, columns: Sequence[Rows]) -> list[Rows]:
        result = self.executor.run(columns, ())
        assert isinstance(result, BatchResult), result
        return list(result.outputs)


def mapped(path: TensorPath, calls: Sequence[Call], routes: Routes) -> Array:
    """Returns the first tensor's block, where the consumer's private mapping has it."""
    tensor = calls[0][0]
    tier = routes.viewer(path.producer.holder)
    assert tier is not None
    span = ByteSpan(tensor.block, tensor.offset, len(calls) * tensor.num_bytes)
    return np.frombuffer(tier.view(path.producer.holder, span, True), np.uint8)


# How many copies


def test_the_same_calls_in_the_same_order_are_copied_once(path: TensorPath) -> None:
    routes = path.consumer.routes()
    inbox, program, batch = Inbox(routes), Watched(look), numbers(4)
    calls = path.publish([batch])
    request, frames = path.request(calls)
    program.run(inbox.read(request.columns, frames, request.holders))
    (seen,) = program.seen
    assert np.array_equal(seen, batch)
    assert np.shares_memory(seen, mapped(path, calls, routes)), "the program reads where the producer wrote"
    assert path.producer.outbox.num_copied_bytes == batch.nbytes
    assert (inbox.num_copied_bytes, inbox.num_viewed_bytes, program.executor.num_copied_bytes) == (0, batch.nbytes, 0)
    inbox.done()
    path.release(calls)


def test_neighbours_of_a_batch_are_copied_once(path: TensorPath) -> None:
    program, batch = Watched(look), numbers(5)
    calls = path.publish([batch])
    program.run(path.deliver(calls[1:4]))
    assert np.array_equal(program.seen[0], batch[1:4])
    assert (path.inbox.num_copied_bytes, program.executor.num_copied_bytes) == (0, 0)
    path.inbox.done()
    path.release(calls)


@pytest.mark.parametrize("order", [[3, 2, 1, 0], [0, 2], [0, 0], [1, 2, 0, 3]])
def test_other_orders_are_copied_once_more_into_memory_that_is_used_again(path: TensorPath, order: list[int]) -> None:
    program, batch = Watched(look), numbers(4)
    calls = path.publish([batch])
    for _ in range(2):
        program.run(path.deliver([calls[at] for at in order]))
        path.inbox.done()
    first, second = program.seen
    assert np.array_equal(first, batch[order])
    assert first.ctypes.data == second.ctypes.data
    assert path.inbox.num_copied_bytes == 0
    assert program.executor.num_copied_bytes == 2 * len(order) * ROW_BYTES
    path.release(calls)


def test_calls_of_two_batches_are_copied_once_more(path: TensorPath) -> None:
    program = Watched(look)
    one, other = path.publish([numbers(2)]), path.publish([numbers(2, 9)])
    program.run(path.deliver([one[0], other[1]]))
    assert np.array_equal(program.seen[0], np.stack([numbers(2)[0], numbers(2, 9)[1]]))
    assert (path.inbox.num_copied_bytes, program.executor.num_copied_bytes) == (0, 2 * ROW_BYTES)
    path.inbox.done()
    path.release([*one, *other])


@pytest.mark.parametrize("size", [SIZE, SIZE + 1])
def test_padding_copies_once_where_it_is_needed(path: TensorPath, size: int) -> None:
    program, batch = Watched(look_padded), numbers(3, size=size)
    calls = path.publish([batch])
    (outputs,) = program.run(path.deliver(calls))
    assert program.executor.num_copied_bytes == (0 if size == SIZE else 3 * 2 * ROW_BYTES)
    assert np.array_equal(np.stack(list(outputs)), batch)
    assert (program.seen[0][:, size:] == 7).all()
    path.inbox.done()
    path.release(calls)


def far_inbox(path: TensorPath, folder: Path) -> tuple[Inbox, CopyingTier]:
    """Opens a consumer on another node than the producer's."""
    tier = CopyingTier(str(folder))
    path.tensors.join(type(path.producer.holder)("producer", FAR, path.producer.arena.name))
    return Inbox(Routes((SharedMemoryTier(path.consumer.holder.node, str(folder)),), (tier,)), BatchBuffers().take), tier


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_tensors_of_another_node_land_in_the_batch(path: TensorPath, tmp_path: Path, order: list[int]) -> None:
    inbox, tier = far_inbox(path, tmp_path)
    program, batch = Watched(look), numbers(3)
    calls = path.publish([batch])
    for _ in range(2):
        request, frames = path.request([calls[at] for at in order])
        program.run(inbox.read(request.columns, frames, request.holders))
        inbox.done()
    first, second = program.seen
    assert np.array_equal(first, batch[order])
    assert first.ctypes.data == second.ctypes.data
    assert (inbox.num_copied_bytes, inbox.num_viewed_bytes) == (2 * batch.nbytes, 0)
    assert (program.executor.num_copied_bytes, tier.num_fetches) == (0, 2)
    path.release(calls)


def test_tensors_of_both_nodes_land_together(path: TensorPath, tmp_path: Path) -> None:
    inbox, tier = far_inbox(path, tmp_path)
    with exchange(str(tmp_path), "neighbour") as neighbour:
        path.tensors.join(neighbour.holder)
        headers, _ = neighbour.outbox.write([numbers(1, 5)])
        (near,) = path.tensors.refs("neighbour", headers, [])
        far = path.publish([numbers(2)])
        program = Watched(look)
        request, frames = path.request([far[1], near, far[0]])
        program.run(inbox.read(request.columns, frames, request.holders))
    assert np.array_equal(program.values[0], np.stack([numbers(2)[1], numbers(1, 5)[0], numbers(2)[0]]))
    assert (inbox.num_copied_bytes, program.executor.num_copied_bytes, tier.num_fetches) == (3 * ROW_BYTES, 0, 1)
    inbox.done()
    path.release(far)


def test_ragged_tensors_of_another_node_are_copied_once_more(path: TensorPath, tmp_path: Path) -> None:
    inbox, _ = far_inbox(path, tmp_path)
    column = [numbers(1, size=SIZE)[0], numbers(1, size=SIZE + 3)[0]]
    calls, program = path.publish([column]), Watched(look_padded)
    request, frames = path.request([calls[1]])
    program.run(inbox.read(request.columns, frames, request.holders))
    assert np.array_equal(program.seen[0][0, : SIZE + 3], column[1])
    inbox.done()
    request, frames = path.request(calls)
    before, after = column, inbox.read(request.columns, frames, request.holders)[0]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    path.release(calls)


# Programs that write to their inputs

writers = pytest.mark.parametrize("program", [add_in_numpy, add_in_torch], ids=["numpy", "torch"])
Order = list[int]
orders = pytest.mark.parametrize("order", [[0, 1, 2], [1], [2, 0], [0, 0]], ids=["stacked", "one", "gathered", "twice"])


@writers
@orders
@pytest.mark.parametrize("limit", [0, 2**20], ids=["stored", "inline"])
def test_writes_of_a_program_stay_private(path: TensorPath, program: Program, order: Order, limit: int) -> None:
    path.limit(limit)
    batch = numbers(3)
    calls = path.publish([batch])
    writer, other = Watched(program), Inbox(path.consumer.routes())
    for _ in range(2):  # the same replica sees them unchanged when they come again
        outputs = writer.run(path.deliver([calls[at] for at in order]))
        request, frames = path.request(calls)
        (meanwhile,) = other.read(request.columns, frames, request.holders)
        assert np.array_equal(np.stack(list(meanwhile)), batch)
        assert np.array_equal(np.stack(list(outputs[0])), batch[order] + 1)
        other.done()
        path.inbox.done()
    assert all(np.array_equal(seen, batch[order]) for seen in writer.values)
    assert all(np.array_equal(array, row) for (array,), row in zip(map(path.tensors.read, calls), batch, strict=True))
    path.release(calls)


@writers
def test_earlier_writes_do_not_hide_later_tensors(path: TensorPath, program: Program) -> None:
    writer = Watched(program)
    places: list[int] = []
    for first in range(4):
        calls = path.publish([numbers(3, first)])
        writer.run(path.deliver(calls))
        path.inbox.done()
        assert np.array_equal(writer.values[-1], numbers(3, first))
        places.append(calls[0][0].offset)
        path.release(calls)
    assert len(set(places)) == 1, "each block was where the one before was"
    assert writer.executor.num_copied_bytes == 0


@writers
def test_writes_of_a_replica_to_its_own_tensors_stay_with_the_batch(path: TensorPath, program: Program) -> None:
    """The replica reads its own output in place, as an input."""
    writer, batch = Watched(program), numbers(2)
    inbox = Inbox(path.producer.routes())
    calls = path.publish([batch])
    for _ in range(2):
        request, frames = path.request(calls)
        (outputs,) = writer.run(inbox.read(request.columns, frames, request.holders))
        later = path.publish([outputs])
        inbox.done()
        assert np.array_equal(np.stack([path.tensors.read(call)[0] for call in later]), batch + 1)
        path.release(later)
    assert all(np.array_equal(seen, batch) for seen in writer.values)
    assert np.array_equal(np.stack([path.tensors.read(call)[0] for call in calls]), batch)
    assert writer.executor.num_copied_bytes == 0
    path.release(calls)


@pytest.mark.parametrize("program", [add_to_first, add_to_second])
@pytest.mark.parametrize("overlap", ["whole", "part", "none"])
@pytest.mark.parametrize("limit", [0, 2**20], ids=["stored", "inline"])
def test_a_tensor_that_is_two_inputs_of_one_call_is_written_to_once(
    path: TensorPath, program: Program, overlap: str, limit: int
) -> None:
    path.limit(limit)
    batch = numbers(4)
    calls = path.publish([batch])
    second = {"whole": calls[:2], "part": calls[1:3], "none": calls[2:]}[overlap]
    expected = {"whole": batch[:2], "part": batch[1:3], "none": batch[2:]}[overlap]
    writer = Watched(program)
    (outputs,) = writer.run(path.deliver([(*one, *other) for one, other in zip(calls[:2], second, strict=True)]))
    untouched = expected if program is add_to_first else batch[:2]
    assert np.array_equal(np.stack(list(outputs)), untouched)
    if not limit:
        assert writer.executor.num_copied_bytes == (0 if overlap == "none" else 2 * ROW_BYTES)
    path.inbox.done()
    path.release(calls)


def test_a_tensor_that_another_input_only_copies_from_is_still_read_where_it_lies(path: TensorPath) -> None:
    batch, program = numbers(2), Watched(add_to_second)
    (one,), (other,) = calls = path.publish([batch])
    (outputs,) = program.run(path.deliver([(other, one), (one, other)]))
    assert np.array_equal(np.stack(list(outputs)), batch[::-1])
    assert program.executor.num_copied_bytes == 2 * ROW_BYTES
    path.inbox.done()
    path.release(calls)


def test_a_view_is_gathered_and_leaves_the_tensor_alone(path: TensorPath) -> None:
    batch, writer = numbers(2), Watched(add_in_numpy)
    calls = path.publish([batch])
    views = [(call[0].view((slice(None, None, -2),)),) for call in calls]
    (outputs,) = writer.run(path.deliver(views))
    assert np.array_equal(np.stack(list(outputs)), batch[:, ::-2] + 1)
    assert writer.executor.num_copied_bytes == batch[:, ::-2].nbytes
    path.inbox.done()
    assert np.array_equal(np.stack([path.tensors.read(call)[0] for call in calls]), batch)
    path.release(calls)


def each(rows: Rows) -> list[Array]:
    return list(rows)


@pytest.mark.parametrize("read", [each, np.stack])
def test_rows_of_rank_0_are_arrays_wherever_they_come_from(path: TensorPath, read: Callable[[Any], Any]) -> None:
    scalars = np.arange(3, dtype=np.float64)
    calls = path.publish([scalars])
    path.limit(2**20)
    small = path.publish([scalars])
    request, frames = path.request([calls[0], small[1], calls[2]])
    assert isinstance(request.columns[0], StoredColumn)
    (rows,) = path.inbox.read(request.columns, frames, request.holders)
    assert all(isinstance(row, np.ndarray) and row.shape == () for row in rows)
    assert np.array_equal(read(rows), scalars)
    path.inbox.done()
    path.release(calls)


def test_without_a_replica_every_batch_has_its_own_memory() -> None:
    """`dyorc.run` may be called on any number of threads, and by programs."""
    executor = ProgramExecutor.load(look)
    results = [executor.run([list(numbers(2, first))], ()) for first in range(2)]
    for first, result in enumerate(results):
        assert isinstance(result, BatchResult)
        assert np.array_equal(result.outputs[0], numbers(2, first))
