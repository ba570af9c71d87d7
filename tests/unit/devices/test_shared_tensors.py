"""Results that stay on the device of a replica, read by others there and on the host. Every copy is counted."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from dyorc.core.arrays import Array
from dyorc.devices import shared_tensors
from dyorc.devices.device_rows import DeviceRows
from dyorc.devices.shared_tensors import ReadingHabit, SharedTensors
from dyorc.errors import TensorLostError, TransportError
from dyorc.transport.column_codec import StoredColumn, StoredRows
from dyorc.transport.host_copies import FilledSource, HostCopyClient
from dyorc.transport.inbox import InputsLostError
from dyorc.transport.messages import BatchReply, decode, encode
from dyorc.transport.tiers import ByteSpan
from tests.counting_device import CountingDevice, CountingTensor
from tests.exchanges import Call, TensorPath, of_tensors, tensor_path
from tests.manual_clock import ManualClock

N = 1000


class Sharing:
    """A producer and a consumer on one device."""

    def __init__(self, path: TensorPath, device: CountingDevice) -> None:
        self.path = path
        self.device = device
        self.clock = ManualClock()
        self.producer = SharedTensors(device, path.producer.arena, 0)
        self.consumer = SharedTensors(device, path.consumer.arena, 0, clock=self.clock)

    def tensor(self, array: Array) -> Any:
        tensor = self.device.copy_from_host(array)
        self.device.num_from_host -= 1
        return tensor

    def keep(self, rows: Any) -> list[Call]:
        """Keeps a column, and returns what the orchestrator knows of it."""
        header = self.producer.keep("y", DeviceRows(self.device, rows))
        assert header is not None
        reply = decode(encode(BatchReply("producer", 1, (header,), 0.0)))
        assert isinstance(reply, BatchReply)
        return self.path.tensors.refs("producer", of_tensors(reply.columns), [])

    def request(self, calls: Sequence[Call]) -> tuple[StoredColumn, Any]:
        """Returns the column of a batch of these calls, as the consumer receives it."""
        request, frames = self.path.request(calls)
        assert not frames
        (column,) = request.columns
        assert isinstance(column, StoredColumn)
        return column, request.holders

    def lend(self, calls: Sequence[Call]) -> DeviceRows | None:
        """Returns the column of these calls on the consumer's device."""
        return self.consumer.lend(*self.request(calls))

    def release(self, calls: Sequence[Call]) -> None:
        for (tensor,) in calls:
            self.producer.release(tensor.block)
            self.path.producer.arena.free(tensor.block)


def values(rows: Any) -> Any:
    """Returns what a tensor of the device holds, uncounted."""
    return rows.as_subclass(torch.Tensor).numpy()


@pytest.fixture
def sharing(tmp_path: Path) -> Iterator[Sharing]:
    device = CountingDevice(0)
    with tensor_path(str(tmp_path)) as path:
        sharing = Sharing(path, device)
        with path.producer.share_device(sharing.producer):
            yield sharing
        sharing.consumer.close()
        sharing.producer.close()
        path.inbox.done()
    assert (device.num_open, device.num_shared) == (0, 0)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the consumer know no memory of its own, as if it were another process."""
    monkeypatch.setattr(shared_tensors, "_own_slabs", Forgetful())


class Forgetful(dict[Any, Any]):
    def get(self, key: Any, default: Any = None) -> Any:
        return default


X = np.arange(3 * N, dtype=np.float32).reshape(3, N)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64, np.float16, np.float32, np.float64])
def test_what_stays_is_read_there_without_a_copy_to_the_host(sharing: Sharing, dtype: Any) -> None:
    x = X.astype(dtype)
    calls = sharing.keep(sharing.tensor(x))
    rows = sharing.lend(calls[1:])
    assert rows is not None
    assert rows.is_stacked
    assert isinstance(rows.rows, CountingTensor)
    np.testing.assert_array_equal(values(rows.rows), x[1:])
    assert (sharing.device.num_to_host, sharing.device.num_from_host, sharing.device.num_open) == (0, 0, 0)


@pytest.mark.usefixtures("apart")
def test_another_process_opens_the_memory_once(sharing: Sharing) -> None:
    for at in range(4):
        calls = sharing.keep(sharing.tensor(X + at))
        rows = sharing.lend(calls)
        assert rows is not None
        np.testing.assert_array_equal(values(rows.rows), X + at)
        assert sharing.device.num_open == 1
        del rows
        sharing.release(calls[:1])
    assert (sharing.device.num_to_host, sharing.device.num_shared) == (0, 1)
    sharing.clock.now_s += 40
    sharing.consumer.close_idle()
    assert sharing.device.num_open == 0


@pytest.mark.usefixtures("apart")
def test_memory_of_a_process_that_is_gone_is_closed_before_the_next_batch(sharing: Sharing) -> None:
    calls = sharing.keep(sharing.tensor(X))
    assert sharing.lend(calls) is not None
    sharing.consumer.forget("producer")
    assert sharing.device.num_open == 1
    sharing.consumer.close_idle()
    assert sharing.device.num_open == 0


@pytest.mark.usefixtures("apart")
def test_memory_that_cannot_be_opened_is_read_on_the_host(sharing: Sharing) -> None:
    calls = sharing.keep(sharing.tensor(X))
    sharing.producer.park()  # a block is left, so the slab stays
    (tensor,) = calls[0]
    gone = msgspec.structs.replace(tensor.device, handle=b"none".ljust(64, b"\0"))
    assert sharing.lend([(msgspec.structs.replace(tensor, device=gone),)]) is None
    np.testing.assert_array_equal(sharing.path.deliver(calls)[0], X)
    sharing.release(calls[:1])
    assert sharing.device.num_shared == 0  # parked, and nothing is left


def test_the_host_gets_one_copy_however_many_read_it(sharing: Sharing) -> None:
    calls = sharing.keep(sharing.tensor(X))
    path = sharing.path
    assert not path.tensors.is_near([tensor for (tensor,) in calls])
    np.testing.assert_array_equal(path.deliver(calls)[0], X)
    assert path.tensors.is_near([tensor for (tensor,) in calls])
    np.testing.assert_array_equal(path.tensors.read([calls[2][0]])[0], X[2])
    assert (sharing.device.num_to_host, sharing.device.num_waits) == (1, 1)
    rows = sharing.lend(calls)
    assert rows is not None  # it is still there


def test_calls_of_different_shapes_and_views_of_them(sharing: Sharing) -> None:
    arrays = [X[0, :7], X[1, :300], X[2, :1]]
    calls = sharing.keep([sharing.tensor(array) for array in arrays])
    rows = sharing.lend(calls)
    assert rows is not None
    for row, array in zip(rows, arrays, strict=True):
        np.testing.assert_array_equal(values(row), array)
    ahead = [(calls[1][0].view((slice(5, 50, 3),)).view((None, slice(2, None))),)]
    row = sharing.lend(ahead)
    assert row is not None
    np.testing.assert_array_equal(values(row.rows), arrays[1][5:50:3][None, 2:][None])
    back = [(calls[1][0].view((slice(None, None, -1),)),)]
    assert sharing.lend(back) is None  # torch has no such strides
    np.testing.assert_array_equal(sharing.path.deliver(back)[0][0], arrays[1][::-1])


def test_batches_of_several_blocks_are_joined(sharing: Sharing) -> None:
    first, second = (sharing.keep(sharing.tensor(X + at)) for at in range(2))
    rows = sharing.lend([second[2], first[0]])
    assert rows is not None
    batch = rows.gather(sharing.device, (N,), 0)
    np.testing.assert_array_equal(values(batch), [X[2] + 1, X[0]])
    inline = sharing.path.publish([X[:1]])
    assert sharing.lend([first[0], inline[0]]) is None  # one of them is on the host


def test_another_device_reads_on_the_host(sharing: Sharing) -> None:
    calls = sharing.keep(sharing.tensor(X))
    other = SharedTensors(CountingDevice(1), sharing.path.consumer.arena, 0)
    assert other.lend(*sharing.request(calls)) is None


def test_what_was_released_is_lost_and_its_memory_is_used_again(sharing: Sharing) -> None:
    calls = sharing.keep(sharing.tensor(X))
    request = sharing.request(calls)
    sharing.release(calls[:1])
    with pytest.raises(InputsLostError):
        sharing.path.inbox.watch(request[1][0], as_stored(request[0]))
    with pytest.raises(InputsLostError):
        sharing.path.deliver(calls)
    again = sharing.keep(sharing.tensor(X + 1))
    assert as_stored(sharing.request(again)[0]).device == as_stored(request[0]).device or sharing.device.num_shared == 1


def as_stored(column: StoredColumn) -> StoredRows:
    (part,) = column.parts
    assert isinstance(part, StoredRows)
    return part


def test_a_block_that_was_overwritten_is_lost_for_all(sharing: Sharing) -> None:
    calls = sharing.keep(sharing.tensor(X))
    rows = sharing.lend(calls)
    assert rows is not None
    assert not rows.changed()
    rows.rows.add_(1)
    assert rows.changed() == [("producer", calls[0][0].block)]
    (holder,) = sharing.request(calls)[1]
    sharing.path.inbox.lose(holder, calls[0][0].block)
    with pytest.raises(InputsLostError):
        sharing.path.deliver(calls)


def test_writes_of_the_owner_beside_it_are_no_changes(sharing: Sharing) -> None:
    rows = sharing.lend(sharing.keep(sharing.tensor(X)))
    assert rows is not None
    sharing.keep(sharing.tensor(X + 1))
    assert not rows.changed()


def test_without_room_nothing_stays(sharing: Sharing) -> None:
    small = SharedTensors(sharing.device, sharing.path.producer.arena, 0, limit_bytes=2 * X.nbytes)
    column = DeviceRows(sharing.device, sharing.tensor(X))
    first = small.keep("y", column)
    assert first is not None
    assert small.keep("y", column) is None
    small.take_back([first])
    assert sharing.path.producer.arena.num_blocks == 0
    assert small.keep("y", column) is not None
    small.close()
    assert SharedTensors(sharing.device, sharing.path.producer.arena, 0, limit_bytes=0).keep("y", column) is None


@pytest.mark.parametrize(
    "change",
    [{"offset": 2**40}, {"offset": 0}, {"holder": 7}, {"num_rows": 2**15}],
)
def test_a_header_that_points_elsewhere_is_refused(sharing: Sharing, change: dict[str, Any]) -> None:
    column, holders = sharing.request(sharing.keep(sharing.tensor(X)))
    wrong = msgspec.structs.replace(as_stored(column), **change)
    with pytest.raises(TransportError):
        sharing.consumer.lend(StoredColumn(column.dtype, (wrong,)), holders)


def test_only_large_results_that_are_read_there_stay(sharing: Sharing) -> None:
    shared = SharedTensors(sharing.device, sharing.path.producer.arena, 4 * N)
    tensor = sharing.tensor(X)
    assert not shared.wants("y", tensor, 3)
    assert shared.wants("y", tensor, 2)


def test_a_habit_is_learned_and_tried_again() -> None:
    habit = ReadingHabit()
    for _ in range(4):
        assert habit.stays()
        habit.learn(was_copied=True)
    tries = [habit.stays() for _ in range(64)]
    assert sum(tries) == 2
    habit.learn(was_copied=False)
    assert habit.stays()


def test_a_process_that_does_not_answer_has_lost_its_blocks(tmp_path: Path) -> None:
    device = CountingDevice(0)
    with tensor_path(str(tmp_path)) as path, contextlib.closing(SharedTensors(device, path.producer.arena, 0)) as shared:
        header = shared.keep("y", DeviceRows(device, device.copy_from_host(X)))
        assert header is not None
        part = as_stored(header)
        assert part.device is not None
        with contextlib.closing(path.consumer.routes()) as routes:
            with pytest.raises(TensorLostError, match="does not copy block"):
                routes.fill(path.producer.holder, part.block, part.device)
            with path.producer.share_device(shared):
                routes.fill(path.producer.holder, part.block, part.device)
                with (
                    contextlib.closing(HostCopyClient()) as client,
                    pytest.raises(TensorLostError, match="no longer has block"),
                ):
                    client.copy(path.producer.holder, part.block + 1)


def test_a_copy_that_fails_loses_its_block_and_no_other(sharing: Sharing, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (sharing.keep(sharing.tensor(X + at)) for at in range(2))

    def fail(tensors: Any) -> Any:
        raise RuntimeError("CUDA error: out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(sharing.device, "copy_to_host", fail)
        with pytest.raises(InputsLostError):
            sharing.path.deliver(first)
    np.testing.assert_array_equal(sharing.path.deliver(second)[0], X + 1)


def test_other_nodes_get_the_bytes_of_what_is_on_a_device(sharing: Sharing) -> None:
    calls = sharing.keep(sharing.tensor(X))
    (tensor,) = calls[1]
    view = sharing.path.producer.arena.view()
    with contextlib.closing(view):
        source = FilledSource(view)
        source.copier = sharing.producer
        span = ByteSpan(tensor.block, tensor.offset, tensor.num_bytes)
        raw = source.read_only(span.block, span.offset, span.num_bytes)
        np.testing.assert_array_equal(np.frombuffer(raw, np.float32), X[1])
        del raw
