"""The contract of a device, on the one that counts copies, and on CUDA where there is a GPU (`make test-gpu`)."""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from jaxtyping import Float

import dyorc
from dyorc.core.arrays import same_array
from dyorc.devices.accelerator import Accelerator
from dyorc.devices.device_rows import DeviceRows
from dyorc.devices.known_devices import accelerator_named
from dyorc.errors import MissingDeviceError, ProgramLoadError
from tests.counting_device import OutOfCountingMemoryError, counting_devices

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here")
TYPES = [np.bool_, np.uint8, np.int16, np.int64, np.float16, np.float32, np.float64, ml_dtypes.bfloat16]


@pytest.fixture(params=["counting", pytest.param("cuda", marks=needs_gpu)])
def accelerator(request: pytest.FixtureRequest) -> Iterator[Accelerator]:
    with counting_devices():
        accelerator = accelerator_named(request.param)
        assert accelerator is not None
        yield accelerator


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(3, 4), (0, 2), ()])
def test_what_is_copied_there_and_back_is_the_same(accelerator: Accelerator, dtype: Any, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, dtype)
    array.flags.writeable = False
    tensor = accelerator.copy_from_host(array)
    assert accelerator.holds(tensor)
    (back,) = accelerator.copy_to_host([tensor]).wait()
    assert same_array(back, array)


def test_copies_to_the_host_follow_what_was_launched(accelerator: Accelerator) -> None:
    tensor = accelerator.copy_from_host(np.arange(2**20, dtype=np.float32))
    for _ in range(20):
        tensor = tensor + 1
    turned = tensor.reshape(2, -1).T
    copies = accelerator.copy_to_host([tensor, turned])
    first, second = copies.wait()
    np.testing.assert_array_equal(first, np.arange(20, 2**20 + 20, dtype=np.float32))
    np.testing.assert_array_equal(second, first.reshape(2, -1).T)


def test_pinned_memory_is_as_long_as_asked_for_and_can_be_copied_from(accelerator: Accelerator) -> None:
    memory = accelerator.allocate_pinned(4096)
    assert memory.nbytes == 4096
    array = np.frombuffer(memory, np.float32)
    array[:] = 3
    tensor = accelerator.copy_from_host(array)
    accelerator.synchronize()
    array[:] = 4
    assert accelerator.copy_to_host([tensor]).wait()[0].tolist() == [3] * 1024


def test_tensors_of_the_host_are_not_held(accelerator: Accelerator) -> None:
    assert not accelerator.holds(torch.ones(2))
    assert not accelerator.holds(np.ones(2))
    assert not accelerator.holds(None)


def test_a_batch_is_padded_on_the_device(accelerator: Accelerator) -> None:
    rows = [accelerator.copy_from_host(np.ones(2, np.float32)), np.zeros(1, np.float32)]
    batch = DeviceRows(accelerator, rows).gather(accelerator, (3,), 7)
    assert accelerator.holds(batch)
    assert accelerator.copy_to_host([batch]).wait()[0].tolist() == [[1, 1, 7], [0, 7, 7]]


def test_only_errors_for_want_of_memory_say_so(accelerator: Accelerator) -> None:
    assert not accelerator.is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert accelerator.total_bytes > 0
    accelerator.free_cache()


def test_the_counting_device_knows_its_own_error() -> None:
    with counting_devices() as devices:
        accelerator_named("counting")
        assert devices[0].is_out_of_memory(OutOfCountingMemoryError("none left"))


@needs_gpu
def test_torch_says_that_a_gpu_has_no_memory() -> None:
    accelerator = accelerator_named("cuda")
    assert accelerator is not None
    with pytest.raises(torch.cuda.OutOfMemoryError) as raised:
        torch.empty(2 * accelerator.total_bytes, dtype=torch.uint8, device="cuda")
    assert accelerator.is_out_of_memory(raised.value)


def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(MissingDeviceError, match="there is no device cuda:999; torch sees"):
        accelerator_named("cuda:999")


def test_requests_for_a_program_whose_device_is_not_there_say_so_and_are_not_sent_again() -> None:
    @dyorc.program(device="cuda:999")
    def far(x: Float[torch.Tensor, "batch n"]) -> Float[torch.Tensor, "batch n"]:
        return x

    @dyorc.workflow
    async def flow(x: Float[torch.Tensor, " n"]) -> Float[torch.Tensor, " n"]:
        return far(x)

    with pytest.raises(ProgramLoadError, match="program 'far' failed: MissingDeviceError: there is no device cuda:999") as raised:
        dyorc.run(flow, x=[1.0])
    assert not raised.value.retryable
