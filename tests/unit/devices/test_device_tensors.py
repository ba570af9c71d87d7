"""What a process keeps on its devices: views, memory that is bounded, and one copy to the host for all who read it."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dyorc.core.arrays import Array, apply_views, inline
from dyorc.core.tensor import ON_DEVICE, BlockId, DType, TensorRef
from dyorc.devices.device_rows import DeviceRows, view_on_device
from dyorc.devices.device_tensors import DeviceTensors
from dyorc.devices.known_devices import accelerator_named
from dyorc.errors import ConfigurationError, InvalidInputError
from dyorc.transport.inbox import InputsLostError
from tests.counting_device import CountingDevice, CountingTensor, counting_devices


class Memory:
    """The host's memory: arrays, by the numbers of blocks."""

    def __init__(self) -> None:
        self.blocks: dict[int, Any] = {}
        self.may_publish = threading.Event()
        self.may_publish.set()

    def publish(self, rows: Any) -> list[TensorRef]:
        assert self.may_publish.wait(30)
        block = len(self.blocks) + 1
        self.blocks[block] = [np.array(row) for row in rows]
        return [
            TensorRef(dtype=DType.FP32, shape=row.shape, num_bytes=row.nbytes, block=block, offset=at)
            for at, row in enumerate(rows)
        ]

    def free(self, blocks: Sequence[BlockId]) -> None:
        for _, block in blocks:
            del self.blocks[block]

    def array(self, tensor: TensorRef) -> Array:
        return apply_views(self.blocks[tensor.block][tensor.offset], tensor.views)


def made(limit_bytes: int | None = None) -> tuple[DeviceTensors, Memory, CountingDevice]:
    memory = Memory()
    return DeviceTensors(memory.publish, memory.free, limit_bytes), memory, CountingDevice(0, total_bytes=4096)


def column(device: CountingDevice, *rows: Sequence[float]) -> DeviceRows:
    return DeviceRows(device, device.copy_from_host(np.array(rows, np.float32)))


def values(device: CountingDevice, rows: Any) -> list[Any]:
    return device.copy_to_host([rows]).wait()[0].tolist()


def test_calls_that_follow_each_other_are_the_tensor_itself() -> None:
    devices, _, device = made()
    rows = column(device, [1, 2], [3, 4], [5, 6])
    refs = devices.keep(rows, "here")
    assert [ref.holder for ref in refs] == [ON_DEVICE] * 3
    assert [(ref.shape, ref.num_bytes, ref.dtype) for ref in refs] == [((2,), 8, DType.FP32)] * 3
    lent = devices.lend(refs)
    assert lent is not None
    assert lent.gather(device, (2,), 0).data_ptr() == rows.rows.data_ptr()
    part = devices.lend(refs[1:])
    assert part is not None
    assert part.gather(device, (2,), 0).data_ptr() == rows.rows[1].data_ptr()
    assert (device.num_from_host, device.num_to_host, device.num_from_device) == (1, 0, 0)


def test_calls_in_another_order_are_joined_and_padded_on_the_device() -> None:
    devices, _, device = made()
    first = devices.keep(column(device, [1, 2], [3, 4]), "here")
    other = devices.keep(column(device, [5, 6, 7]), "here")
    lent = devices.lend([first[1], other[0], first[0].view((slice(None, None, -1),))])
    assert lent is not None
    assert values(device, lent.gather(device, (4,), 9)) == [[3, 4, 9, 9], [5, 6, 7, 9], [2, 1, 9, 9]]
    assert device.num_from_host == 2


def test_readers_share_one_copy_and_views_of_it() -> None:
    devices, memory, device = made()
    refs = devices.keep(column(device, [1, 2], [3, 4]), "here")
    own = inline(np.zeros(1, np.float32))
    view = refs[1].view((slice(1, None),))
    assert not devices.is_on_host(refs[0].block)
    copies = devices.on_host([refs[0], own, view])
    assert devices.is_on_host(refs[0].block)
    assert copies[1] is own
    assert [memory.array(copies[0]).tolist(), memory.array(copies[2]).tolist()] == [[1, 2], [4]]
    devices.on_host(refs)
    assert device.num_to_host == 1
    devices.release(refs[0].block)
    assert not memory.blocks


def test_readers_on_several_threads_share_one_copy() -> None:
    devices, memory, device = made()
    refs = devices.keep(column(device, [1, 2]), "here")
    memory.may_publish.clear()
    read: list[Array] = []
    threads = [
        threading.Thread(target=lambda: read.append(memory.array(devices.on_host(refs)[0])), daemon=True) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    memory.may_publish.set()
    for thread in threads:
        thread.join(30)
    assert [array.tolist() for array in read] == [[1, 2]] * 4
    assert device.num_to_host == 1


def test_a_block_that_is_released_while_it_is_copied_leaves_nothing() -> None:
    memory, device = Memory(), CountingDevice(0)

    def publish_late(rows: Any) -> list[TensorRef]:
        copies = memory.publish(rows)
        devices.release(refs[0].block)
        return copies

    devices = DeviceTensors(publish_late, memory.free)
    refs = devices.keep(column(device, [1, 2]), "here")
    with pytest.raises(InputsLostError) as raised:
        devices.on_host(refs)
    assert raised.value.blocks == ((ON_DEVICE, refs[0].block),)
    assert not memory.blocks
    assert devices.bytes_on(device) == 0


def test_released_tensors_are_lost_and_their_numbers_never_return() -> None:
    devices, _, device = made()
    (ref,) = devices.keep(column(device, [1, 2]), "here")
    devices.release(ref.block)
    devices.release(ref.block)
    for read in (lambda: devices.lend([ref]), lambda: devices.on_host([ref])):
        with pytest.raises(InputsLostError):
            read()
    assert devices.keep(column(device, [1, 2]), "here")[0].block != ref.block


def test_the_least_recently_used_moves_out_when_results_take_too_much() -> None:
    devices, memory, device = made(limit_bytes=24)
    first, second, third = (devices.keep(column(device, [at, at]), "here") for at in range(3))
    assert devices.lend(first) is not None  # used again
    fourth = devices.keep(column(device, [3, 3]), "here")
    assert devices.bytes_on(device) == 24
    assert devices.lend(second) is None
    assert memory.array(devices.on_host(second)[0]).tolist() == [1, 1]
    assert all(devices.lend(refs) is not None for refs in (first, third, fourth))
    assert device.num_to_host == 1
    assert devices.report()["num_device_columns_moved_out"] == 1


def test_a_quarter_of_the_memory_is_the_limit_if_none_is_set() -> None:
    devices, _, device = made()
    for at in range(3):
        devices.keep(column(device, [at] * 128), "here")  # 512 bytes of 4,096
    assert devices.bytes_on(device) == 1024


def test_a_result_larger_than_the_limit_moves_out_at_once() -> None:
    devices, memory, device = made(limit_bytes=4)
    refs = devices.keep(column(device, [1, 2]), "here")
    assert devices.bytes_on(device) == 0
    assert devices.lend(refs) is None
    assert memory.array(devices.on_host(refs)[0]).tolist() == [1, 2]


def test_a_small_view_does_not_keep_a_large_tensor() -> None:
    devices, _, device = made()
    large = device.copy_from_host(np.zeros((2, 1024), np.float32))
    refs = devices.keep(DeviceRows(device, large[:, :2]), "here")
    lent = devices.lend(refs)
    assert lent is not None
    assert lent.rows.untyped_storage().nbytes() == 16
    assert device.num_synchronized == 1  # the copy has ended before others read it


def test_a_write_to_a_lent_tensor_is_noticed() -> None:
    devices, _, device = made()
    refs = devices.keep(column(device, [1, 2], [3, 4]), "here")
    lent = devices.lend(refs)
    assert lent is not None
    assert not lent.changed()
    lent.gather(device, (2,), 0)[0].add_(1)
    assert lent.changed() == [(ON_DEVICE, refs[0].block)]
    again = devices.lend(refs)
    assert again is not None
    assert again.changed()  # a later reader learns it, too


def test_types_that_no_message_has_are_refused() -> None:
    devices, _, device = made()
    complex_rows = torch.zeros((1, 2), dtype=torch.complex64).as_subclass(type(column(device, [1]).rows))
    with pytest.raises(InvalidInputError, match=r"torch\.complex64"):
        devices.keep(DeviceRows(device, complex_rows), "here")


_SLICES = st.builds(slice, *[st.none() | st.integers(-5, 5)] * 2, st.none() | st.integers(-3, 3).filter(bool))
_ITEMS = st.lists(_SLICES | st.integers(0, 1) | st.none() | st.just(...), max_size=4).filter(
    lambda items: items.count(...) <= 1 and sum(item is not None and item is not ... for item in items) <= 3
)


@given(_ITEMS)
def test_views_on_a_device_are_those_of_numpy(items: list[Any]) -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    expected = apply_views(array, [tuple(items)])
    np.testing.assert_array_equal(view_on_device(torch.from_numpy(array), tuple(items)).numpy(), expected)


def test_a_device_is_found_by_its_name_once() -> None:
    with counting_devices() as devices:
        assert accelerator_named(None) is accelerator_named("cpu") is None
        assert accelerator_named("counting") is accelerator_named("counting:0") is devices[0]
        assert accelerator_named("counting:1") is devices[1]
        with pytest.raises(ConfigurationError, match=r"'npu:3' is of no known kind.*'cuda'"):
            accelerator_named("npu:3")


def test_the_counting_device_refuses_to_be_read_by_the_host() -> None:
    tensor = CountingDevice(0).copy_from_host(np.ones(2, np.float32))
    assert isinstance(tensor + 1, CountingTensor)
    with pytest.raises(RuntimeError, match="on the host"):
        tensor.tolist()
    with pytest.raises(RuntimeError, match="same device"):
        torch.add(tensor, torch.ones(2))
