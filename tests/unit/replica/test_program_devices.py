"""A program on a device whose results come to the host, as in a replica of its own and under `dyorc.run`."""

from collections.abc import Iterator

import numpy as np
import pytest
from jaxtyping import Float
from torch import Tensor

import dyorc
from dyorc.errors import DefinitionError, ExecutionError, ProgramLoadError
from dyorc.replica.batch_results import BatchError, BatchResult
from dyorc.replica.executor import ProgramExecutor
from tests.counting_device import CountingDevice, CountingTensor, OutOfCountingMemoryError, counting_devices

X = np.arange(4, dtype=np.float32)


@pytest.fixture(autouse=True)
def devices() -> Iterator[dict[int, CountingDevice]]:
    with counting_devices() as devices:
        yield devices


@dyorc.program(device="counting", pad=dyorc.pad(n=(8,)))
def both(x: Float[Tensor, "batch n"]) -> tuple[Float[Tensor, "batch n"], Float[Tensor, "batch 1"]]:
    assert isinstance(x, CountingTensor)
    return x * 2, x.sum(1, keepdim=True)


def test_all_results_of_a_batch_are_copied_at_once(devices: dict[int, CountingDevice]) -> None:
    executor = ProgramExecutor.load(both)
    executor.reuse_memory()
    result = executor.run([[X, X + 1]], ())
    assert isinstance(result, BatchResult)
    doubled, sums = result.outputs
    assert [row.tolist() for row in doubled] == [(2 * X).tolist(), (2 * X + 2).tolist()]
    assert [row.tolist() for row in sums] == [[6], [10]]
    device = devices[0]
    assert (device.num_from_host, device.num_to_host, device.num_started_copies, device.num_waits) == (1, 2, 1, 1)
    assert device.num_pinned_bytes >= 2 * 8 * 4
    assert device.num_synchronized == 1


def test_run_copies_at_each_program() -> None:
    @dyorc.program(device="counting")
    def double(x: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]:
        return x * 2

    @dyorc.workflow
    async def twice(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return double(double(x))

    np.testing.assert_array_equal(dyorc.run(twice, X), 4 * X)


def test_want_of_memory_is_named() -> None:
    @dyorc.program(device="counting")
    def greedy(x: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]:
        raise OutOfCountingMemoryError("tried to allocate 20 GiB")

    result = ProgramExecutor.load(greedy).run([[X]], ())
    assert isinstance(result, BatchError)
    assert result.is_out_of_device
    assert result.message == (
        f"program 'greedy' finds no memory on device counting:0, which has {2**30} bytes: tried to allocate 20 GiB"
    )
    with pytest.raises(ExecutionError, match="'greedy' finds no memory"):
        dyorc.run(greedy, X)


def test_a_device_that_is_not_there_is_an_error_of_loading() -> None:
    @dyorc.program(device="npu")
    def lost(x: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]:
        return x

    with pytest.raises(ProgramLoadError, match="device 'npu' is of no known kind; expected 'cpu' or one of"):
        ProgramExecutor.load(lost)


def test_a_program_without_torch_has_nothing_to_put_on_a_device() -> None:
    @dyorc.program(device="counting")
    def plain(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
        return x

    with pytest.raises(ProgramLoadError, match=r"'plain' declares device='counting', and none of its tensors are torch\.Tensor"):
        ProgramExecutor.load(plain)


@pytest.mark.parametrize("device", ["", "CUDA", "cuda:", "cuda:x", 0])
def test_what_is_no_name_of_a_device_is_refused(device: object) -> None:
    with pytest.raises(DefinitionError, match=r"device is .*, expected 'cpu', 'cuda', 'cuda:1' and the like, or None"):
        both.with_options(device=device)
