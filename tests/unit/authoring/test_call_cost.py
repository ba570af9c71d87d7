"""What a program declares of the cost of its calls."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float, Int

import dyorc
from dyorc.authoring.overrides import override
from dyorc.authoring.program import Program
from dyorc.core.arrays import inline
from dyorc.core.tensor import DType
from dyorc.errors import DefinitionError, ProgramError

Rows = Float[np.ndarray, "batch length"]


def program(cost: Callable[..., Any], **options: Any) -> Program:
    @dyorc.program(name="fill", max_batch_cost=100, cost=cost, **options)
    def fill(tokens: Int[np.ndarray, "batch length"], scale: Float[np.ndarray, " batch"], k: int = 1) -> Rows:
        return tokens * scale[:, None] * k

    return fill


def cost_of(declared: Program, length: int, k: int = 1) -> float:
    assert declared.call_cost is not None
    tensors = inline(np.zeros(length, np.int64)), inline(np.float32(1))
    return declared.call_cost.compute(tensors, (k,))


def test_a_cost_sees_shapes_after_padding_types_and_parameters_by_name() -> None:
    assert cost_of(program(lambda tokens: tokens.shape[0]), 5) == 5.0
    assert cost_of(program(lambda tokens: tokens.shape[0], pad=dyorc.pad(length=(8, 16))), 9) == 16.0
    assert cost_of(program(lambda k, tokens: k * tokens.shape[0]), 5, 3) == 15.0
    assert cost_of(program(lambda scale: len(scale.shape) + (scale.dtype is DType.FP32)), 5) == 1.0
    assert cost_of(program(lambda tokens, *, weight=2.5: weight * tokens.shape[0]), 2) == 5.0
    assert cost_of(program(lambda: 0), 5) == 0.0


def test_a_program_without_a_cost_computes_none() -> None:
    @dyorc.program
    def plain(tokens: Rows) -> Rows:
        return tokens

    assert plain.call_cost is None


async def _async(tokens: Any) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (lambda tokns: 1, r"cost takes 'tokns', which the program does not; it takes \['k', 'scale', 'tokens'\]"),
        (lambda *tokens: 1, r"cost takes \*tokens, expected inputs by their names"),
        (lambda tokens, /: 1, "cost takes tokens, expected inputs by their names"),
        (_async, "cost is an async function"),
        (dict, "whose parameters are unknown"),
    ],
)
def test_a_cost_of_something_else_is_refused_where_it_is_declared(cost: Callable[..., Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        program(cost)


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (lambda tokens: tokens.shape[3], "IndexError: the cost of a call could not be computed: tuple index out of range"),
        (lambda: -1, r"the cost of a call is -1, expected a finite number of at least 0 \(no bool\)"),
        (lambda: float("nan"), "the cost of a call is nan"), (lambda: float("inf"), "the cost of a call is inf"),
        (lambda: True, "the cost of a call is True"), (lambda: "7", "the cost of a call is '7'"),
        (lambda: None, "TypeError: the cost of a call could not be computed"),
    ],
)  # fmt: skip
def test_a_cost_that_is_no_number_fails_the_call(cost: Callable[..., Any], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        cost_of(program(cost), 5)


@pytest.mark.parametrize("limit", [float("inf"), float("nan"), True, 0])
def test_a_limit_that_is_no_finite_number_is_refused_in_words_that_fit(limit: Any) -> None:
    message = rf"max_batch_cost is {limit}, expected a finite number above 0 \(no bool\), or None"
    with pytest.raises(DefinitionError, match=message):
        override(program(lambda: 1), {"max_batch_cost": limit})


def test_settings_change_the_limit_of_a_cost_that_the_code_declares() -> None:
    declared = program(lambda tokens: tokens.shape[0])
    assert override(declared, {"max_batch_cost": 7.5}).options.max_batch_cost == 7.5
    with pytest.raises(DefinitionError, match="cost is a function, and only its code can declare one"):
        override(declared, {"cost": len})

    @dyorc.program
    def plain(tokens: Rows) -> Rows:
        return tokens

    with pytest.raises(DefinitionError, match="max_batch_cost is 7, but the program declares no cost of a call"):
        override(plain, {"max_batch_cost": 7})


def test_a_program_by_another_name_keeps_its_cost() -> None:
    other = program(lambda tokens: tokens.shape[0]).with_options(name="other", pad=dyorc.pad(length=(8,)))
    assert cost_of(other, 5) == 8.0
