"""The batch of zeros after a program was loaded: for which programs, of which shapes, and that its failure harms nobody."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int32

import dyorc
from dyorc.authoring.spec import Bytes
from dyorc.replica.program_lifecycle import load_and_warm_up

seen: list[tuple[Any, ...]] = []


@dyorc.program(pad=dyorc.pad(width=(16, 64)))
class Shapes:
    def __call__(
        self,
        image: Float[np.ndarray, "batch 3 width height"],
        mask: Bool[np.ndarray, "batch height"],
        text: Bytes[np.ndarray, " batch"],
        factor: int = 7,
    ) -> Float[np.ndarray, " batch"]:
        seen.append((image.shape, mask.shape, text.tolist(), factor))
        return image.sum(axis=(1, 2, 3))


@dyorc.program(batched=False)
class Unbatched:
    def __call__(self, x: Int32[np.ndarray, "... 4"]) -> Int32[np.ndarray, " 4"]:
        seen.append((x.shape,))
        return x


@dyorc.program
class Raising:
    def __call__(self, x: Float[np.ndarray, "batch 2"]) -> Float[np.ndarray, "batch 2"]:
        seen.append((x.shape,))
        raise SystemExit("zeros are not for me")


@dyorc.program(pure=False, idempotent=True)
class Effect:
    def __call__(self, x: Float[np.ndarray, "batch 2"]) -> Float[np.ndarray, "batch 2"]:
        raise AssertionError("it has an effect")


@dyorc.program
class Undecided:
    def __call__(self, x: Float[np.ndarray, "batch 2"], factor: float) -> Float[np.ndarray, "batch 2"]:
        raise AssertionError("nobody knows the factor")


@dyorc.program
def function(x: Float[np.ndarray, "batch 2"]) -> Float[np.ndarray, "batch 2"]:
    raise AssertionError("a function loads nothing")


def warmed(program: Any) -> list[tuple[Any, ...]]:
    """Returns what a program was called with while it was loaded."""
    seen.clear()
    load_and_warm_up(program)
    return list(seen)


def test_declared_sizes_are_kept_padded_ones_are_the_smallest_bucket_and_others_one() -> None:
    assert warmed(Shapes()) == [((1, 3, 16, 1), (1, 1), [b""], 7)]


def test_a_program_that_takes_one_call_at_a_time_gets_one() -> None:
    assert warmed(Unbatched()) == [((4,),)]


def test_a_batch_that_fails_is_ignored() -> None:
    assert warmed(Raising()) == [((1, 2),)]


def test_nothing_runs_that_has_an_effect_needs_a_parameter_is_a_function_or_does_not_want_to() -> None:
    for program in (Effect(), Undecided(), function, Shapes().with_options(warmup=False)):
        assert warmed(program) == []
