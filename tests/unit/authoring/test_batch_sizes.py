"""How many calls a batch may have where the author says nothing: one, if the program has an effect that may not be repeated."""

from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.authoring.overrides import override, override_programs
from dyorc.authoring.program import Program

B = Float[np.ndarray, "batch n"]


def program_with(**options: Any) -> Program:
    @dyorc.program(name="charge", **options)
    def charge(x: B) -> B:
        return x

    return charge


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, 32),
        ({"pure": False}, 1),
        ({"pure": False, "idempotent": True}, 32),
        ({"pure": False, "max_batch_size": 8}, 8),
        ({"pure": False, "max_batch_size": None}, 1),
    ],
)
def test_effects_share_no_batch_unless_the_author_gives_a_size_or_they_may_be_repeated(
    options: dict[str, Any], size: int
) -> None:
    assert program_with(**options).options.max_batch_size == size


def test_other_options_later_change_a_size_that_nobody_gave() -> None:
    assert program_with().with_options(pure=False).options.max_batch_size == 1
    assert program_with(pure=False).with_options(idempotent=True).options.max_batch_size == 32
    assert program_with(pure=False).with_options(name="other").with_options(pure=True).options.max_batch_size == 32
    assert program_with(max_batch_size=8).with_options(pure=False).options.max_batch_size == 8
    assert program_with().with_options(max_batch_size=8).with_options(pure=False).options.max_batch_size == 8


def test_an_operator_may_give_a_size() -> None:
    program = program_with(pure=False)
    with override_programs([program], {"charge": {"max_batch_size": 16}}):
        assert program.options.max_batch_size == 16
    assert program.options.max_batch_size == 1
    assert override(program_with(pure=False), {"num_replicas": 2}).options.max_batch_size == 1


def test_a_call_that_raises_fails_no_other_effect() -> None:
    happened: list[float] = []

    @dyorc.program(pure=False)
    def charge(x: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
        if (x < 0).any():
            raise ValueError("negative")
        happened.extend(x.tolist())
        return x

    @dyorc.workflow
    async def orders(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        dyorc.map(charge, await x)
        return x

    amounts = np.arange(1, 31, dtype=np.float32)
    amounts[7] = -1
    with pytest.warns(RuntimeWarning, match="an effect of 'charge' failed"):
        dyorc.run(orders, amounts)
    assert sorted(happened) == [amount for amount in amounts.tolist() if amount > 0]
