"""A batch-invariant program returns the same bits whoever shares the batch."""

from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float

import dyorc
from dyorc.authoring.program import Program
from dyorc.errors import DefinitionError
from dyorc.replica.batch_results import BatchError, BatchResult
from dyorc.replica.executor import ProgramExecutor

NUM_FEATURES = 784
torch.manual_seed(0)
_layer = torch.nn.Linear(NUM_FEATURES, 128)
_weights = _layer.weight.detach().numpy().T
ROWS = np.random.default_rng(0).standard_normal((40, NUM_FEATURES), np.float32)


@dyorc.program(max_batch_size=40, batch_invariant=True)
def by_torch(x: Float[torch.Tensor, "batch n"]) -> Float[torch.Tensor, "batch m"]:
    return _layer(x)


@dyorc.program(max_batch_size=40, batch_invariant=True)
def by_numpy(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch m"]:
    return x @ _weights


@dyorc.program(max_batch_size=40, batch_invariant=True)
def same(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    return x


@dyorc.program(max_batch_size=40, batch_invariant=True)
def refusing(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    if x[0, 0] > 0:
        raise ValueError("it is positive")
    return x


def run(executor: ProgramExecutor, rows: Any) -> list[Any]:
    result = executor.run([rows], ())
    assert isinstance(result, BatchResult), result
    return [row.copy() for row in result.outputs[0]]


@pytest.mark.parametrize("program", [by_torch, by_numpy])
def test_no_bit_depends_on_the_others(program: Program) -> None:
    executor = ProgramExecutor.load(program)
    executor.reuse_memory()
    alone = [run(executor, ROWS[at : at + 1])[0].tobytes() for at in range(len(ROWS))]
    for size in range(1, len(ROWS) + 1):
        start = (7 * size) % (len(ROWS) - size + 1)
        together = run(executor, ROWS[start : start + size])
        assert [row.tobytes() for row in together] == alone[start : start + size], f"in a batch of {size}"


def test_results_that_lie_in_the_memory_of_inputs_stay() -> None:
    executor = ProgramExecutor.load(same)
    executor.reuse_memory()
    np.testing.assert_array_equal(run(executor, [row[:9] for row in ROWS[:5]]), ROWS[:5, :9])


def test_the_error_of_one_call_is_the_batch_s() -> None:
    result = ProgramExecutor.load(refusing).run([np.array([[-1.0], [1.0]], np.float32)], ())
    assert isinstance(result, BatchError)
    assert result.message == "it is positive"


def test_another_value_is_refused() -> None:
    with pytest.raises(DefinitionError, match="program 'same': batch_invariant is 1, expected True or False"):
        same.with_options(batch_invariant=1)
