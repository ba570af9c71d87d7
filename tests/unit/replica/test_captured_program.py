"""Programs that are captured as graphs of their device, on one that replays what it recorded, without a GPU."""

import asyncio
from collections.abc import Iterator
from typing import Any, TypedDict

import numpy as np
import pytest
import torch
from jaxtyping import Float, Int64
from torch import Tensor

import dyorc
from dyorc.authoring.program import Program
from dyorc.errors import DefinitionError, ProgramLoadError
from dyorc.replica.batch_results import BatchResult
from dyorc.replica.executor import ProgramExecutor
from dyorc.replica.program_lifecycle import load_and_warm_up
from tests.asking import submission
from tests.counting_device import CountingDevice, counting_devices
from tests.unit.cells.celled import celled

GRAPHS: dict[str, Any] = {"device": "counting", "cuda_graphs": True}


@pytest.fixture(autouse=True)
def devices() -> Iterator[dict[int, CountingDevice]]:
    with counting_devices() as devices:
        yield devices


def run(executor: ProgramExecutor, *columns: Any) -> list[Any]:
    result = executor.run(columns, ())
    assert isinstance(result, BatchResult), result
    return list(result.outputs)


runs: list[tuple[int, ...]] = []


@dyorc.program(max_batch_size=6, pad=dyorc.pad(n=(4, 8), value=2), **GRAPHS)
def scale(x: Float[Tensor, "batch n"], by: Float[Tensor, "batch 1"]) -> tuple[Float[Tensor, "batch n"], Float[Tensor, "batch 1"]]:
    runs.append(tuple(x.shape))
    y = torch.empty_like(x)
    torch.mul(x, by, out=y)
    y += 1
    return y, x.sum(1, keepdim=True)


def test_a_batch_of_any_size_replays_the_graph_of_the_next_one(devices: dict[int, CountingDevice]) -> None:
    executor = load_and_warm_up(scale)
    device = devices[0]
    assert set(runs) == {(size, n) for size in (1, 2, 4, 6) for n in (4, 8)}
    assert device.num_captures == 8
    runs.clear()
    rng = np.random.default_rng(0)
    for num_replays, (num_calls, n) in enumerate([(1, 4), (3, 8), (6, 5), (2, 1), (5, 8), (3, 3)], 1):
        rows = [rng.random(n, np.float32) for _ in range(num_calls)]
        factors = [rng.random(1, np.float32) for _ in range(num_calls)]
        scaled, sums = run(executor, rows, factors)
        padded = 2 * (next(size for size in (4, 8) if size >= n) - n)
        for row, by, y, total in zip(rows, factors, scaled, sums, strict=True):
            np.testing.assert_allclose(y, row * by + 1, rtol=1e-6)
            np.testing.assert_allclose(total, [row.sum() + padded], rtol=1e-6)
        assert device.num_replays == num_replays
    assert not runs, "the program's code ran although it was captured"


class Parts(TypedDict):
    total: Float[Tensor, " batch"]
    largest: Float[Tensor, " batch"]


def test_named_outputs_and_a_class_keep_their_form(devices: dict[int, CountingDevice]) -> None:
    @dyorc.program(max_batch_size=2, **GRAPHS)
    class Summing:
        def __init__(self) -> None:
            self.bias = torch.ones(())

        def __call__(self, x: Float[Tensor, "batch 3"]) -> Parts:
            return {"largest": x.amax(1), "total": x.sum(1) + self.bias}

    total, largest = run(load_and_warm_up(Summing()), [np.arange(3, dtype=np.float32)])
    assert (total.tolist(), largest.tolist()) == ([4], [2])


def test_a_program_without_batches_has_one_graph(devices: dict[int, CountingDevice]) -> None:
    @dyorc.program(batched=False, **GRAPHS)
    def double(x: Float[Tensor, "2 2"]) -> Float[Tensor, "2 2"]:
        return x + x

    executor = load_and_warm_up(double)
    (rows,) = run(executor, [np.ones((2, 2), np.float32)])
    assert rows[0].tolist() == [[2, 2], [2, 2]]
    assert (devices[0].num_captures, devices[0].num_replays) == (1, 1)


def test_calls_of_a_batch_invariant_program_replay_one_by_one(devices: dict[int, CountingDevice]) -> None:
    @dyorc.program(batch_invariant=True, **GRAPHS)
    def double(x: Float[Tensor, "batch 2"]) -> Float[Tensor, "batch 2"]:
        return x + x

    executor = load_and_warm_up(double)
    (rows,) = run(executor, [np.full(2, at, np.float32) for at in range(3)])
    assert [row.tolist() for row in rows] == [[0, 0], [2, 2], [4, 4]]
    assert (devices[0].num_captures, devices[0].num_replays) == (1, 3)


def test_calls_that_fill_a_batch_hold_nothing_of_others(devices: dict[int, CountingDevice]) -> None:
    @dyorc.program(max_batch_size=4, **GRAPHS)
    def mixed(x: Float[Tensor, "batch 1"]) -> Float[Tensor, "batch 1"]:
        return x + x.sum()

    executor = load_and_warm_up(mixed)
    run(executor, [np.full(1, 7, np.float32)] * 4)
    (rows,) = run(executor, [np.ones(1, np.float32)] * 3)
    assert [float(row[0]) for row in rows] == [4, 4, 4]


@pytest.mark.anyio
async def test_results_that_stay_on_the_device_survive_the_next_replay(devices: dict[int, CountingDevice]) -> None:
    @dyorc.program(max_batch_size=1, **GRAPHS)
    def double(x: Float[Tensor, "batch 4"]) -> Float[Tensor, "batch 4"]:
        return x * 2

    @dyorc.program(device="counting")
    def add(x: Float[Tensor, "batch 4"], y: Float[Tensor, "batch 4"]) -> Float[Tensor, "batch 4"]:
        return x + y

    @dyorc.workflow
    async def both(x: Float[np.ndarray, "4"], y: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
        return add(double(x), double(y))

    async with celled(both) as orchestrator:
        devices[0].reset()
        x = np.arange(4, dtype=np.float32)
        asked = [orchestrator.infer(submission(both, [x + at, 3 * x])) for at in range(4)]
        for at, (y,) in enumerate(await asyncio.gather(*asked)):
            np.testing.assert_array_equal(y, 2 * (x + at) + 6 * x)
        assert devices[0].num_replays == 8
        assert 1 <= devices[0].num_to_host <= 4  # calls of `add` may share batches


@dyorc.program(**GRAPHS)
def reading(x: Float[Tensor, "batch 2"]) -> Float[Tensor, "batch 2"]:
    return x if x.sum().item() > 0 else -x


@dyorc.program(**GRAPHS)
def free(x: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]:
    return x


@dyorc.program(**GRAPHS)
def ranked(x: Float[Tensor, "batch ... 2"]) -> Float[Tensor, "batch ... 2"]:
    return x


@dyorc.program(**GRAPHS)
def static(x: Float[Tensor, "batch 2"], factor: float = 2) -> Float[Tensor, "batch 2"]:
    return x * factor


@dyorc.program(**GRAPHS)
def half(x: Float[Tensor, "batch 2"], ids: Int64[np.ndarray, "batch 2"]) -> Float[Tensor, "batch 2"]:
    return x


@dyorc.program(**GRAPHS)
def leaving(x: Float[Tensor, "batch 2"]) -> Float[Tensor, "batch 2"]:
    return torch.zeros(len(x), 2)


@dyorc.program(**GRAPHS)
def shrinking(x: Float[Tensor, "batch 2"]) -> Float[Tensor, "batch 2"]:
    return x[:1]


@dyorc.program(pad=dyorc.pad(n=range(1, 51)), **GRAPHS)
def many(x: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]:
    return x


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (
            reading,
            r"'reading' cannot be captured as a CUDA graph, for inputs of \[\[32, 2\]\]: RuntimeError: item reads a tensor",
        ),
        (free, r"'free': cuda_graphs needs known shapes, and dimension 'n' of 'x' may have any size.*pad=dyorc.pad\(n="),
        (ranked, "'x' has no fixed rank"),
        (static, "'static': cuda_graphs records tensors alone, and the program takes the static value 'factor'"),
        (half, "needs torch tensors of numbers, and 'ids' is none"),
        (leaving, "it returned 'output', which is not on device counting:0"),
        (shrinking, r"it returned 'output' of shape \[1, 2\], expected 32 rows"),
        (many, "would capture 6 sizes of batches in 50 shapes, expected at most 256 graphs"),
    ],
    ids=lambda each: each.name if isinstance(each, Program) else "",
)
def test_what_cannot_be_captured_is_refused_by_name_when_it_is_loaded(program: Program, text: str) -> None:
    with pytest.raises(ProgramLoadError, match=text):
        load_and_warm_up(program)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cuda_graphs": True, "device": None}, "cuda_graphs needs a device, such as device='cuda'"),
        ({"pure": False}, "its code does not run for each batch, so pure=False cannot be kept"),
        ({"sees_requests": True}, "so sees_requests=True cannot be kept"),
        ({"cuda_graphs": 1}, "cuda_graphs is 1, expected"),
    ],
)
def test_options_that_contradict_graphs_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        scale.with_options(**options)


def test_a_program_that_waits_cannot_be_captured() -> None:
    with pytest.raises(DefinitionError, match="only a plain function can be captured by cuda_graphs"):

        @dyorc.program(batched=False, **GRAPHS)
        async def waiting(x: Float[Tensor, "2"]) -> Float[Tensor, "2"]:
            return x


def test_on_the_host_the_program_runs_as_it_is() -> None:
    runs.clear()
    executor = load_and_warm_up(scale.with_options(device="cpu"))
    scaled, _ = run(executor, [np.ones(4, np.float32)], [np.ones(1, np.float32)])
    assert scaled[0].tolist() == [2, 2, 2, 2]
    assert runs == [(1, 4)]
