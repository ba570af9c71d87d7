"""The chain benchmark's three programs as a DyOrc workflow.

Served with `dyorc serve chain.py:chain`. Its peer is `ray_serve_app.py`.
"""

import torch
from jaxtyping import Float
from torch import Tensor

import dyorc
from benchmarks.focused.chain.work import MAX_BATCH_SIZE, NUM_VALUES, make, ramp, shift, total


@dyorc.program(max_batch_size=MAX_BATCH_SIZE)
class Make:
    """Expands a seed to 8 MB."""

    def __init__(self) -> None:
        self.ramp = ramp()

    @torch.inference_mode()
    def __call__(self, seed: Float[Tensor, "batch 1"]) -> Float[Tensor, "batch 2000000"]:
        return make(self.ramp, seed)


@dyorc.program(max_batch_size=MAX_BATCH_SIZE)
class Shift:
    """Turns 8 MB into 8 MB."""

    @torch.inference_mode()
    def __call__(self, x: Float[Tensor, "batch 2000000"]) -> Float[Tensor, "batch 2000000"]:
        return shift(x)


@dyorc.program(max_batch_size=MAX_BATCH_SIZE)
class Total:
    """Reduces 8 MB to four values."""

    @torch.inference_mode()
    def __call__(self, x: Float[Tensor, "batch 2000000"]) -> Float[Tensor, "batch 4"]:
        return total(x)


@dyorc.program(max_batch_size=MAX_BATCH_SIZE)
class MakeThere:
    """Like `Make`, but writes straight into shared memory."""

    def __init__(self) -> None:
        self.ramp = ramp()

    @torch.inference_mode()
    def __call__(self, seed: Float[Tensor, "batch 1"]) -> Float[Tensor, "batch 2000000"]:
        return make(self.ramp, seed, dyorc.empty((len(seed), NUM_VALUES), torch.float32))


@dyorc.program(max_batch_size=MAX_BATCH_SIZE)
class ShiftThere:
    """Like `Shift`, but writes straight into shared memory."""

    @torch.inference_mode()
    def __call__(self, x: Float[Tensor, "batch 2000000"]) -> Float[Tensor, "batch 2000000"]:
        return shift(x, dyorc.empty(tuple(x.shape), x.dtype))


make_values = Make()
make_values_there = MakeThere()
shift_values_there = ShiftThere()
shift_values = Shift()
total_values = Total()


@dyorc.workflow
async def chain(seed: Float[Tensor, "1"]) -> Float[Tensor, "4"]:
    """Calls the programs in sequence."""
    return total_values(shift_values(make_values(seed)))


@dyorc.workflow
async def chain_there(seed: Float[Tensor, "1"]) -> Float[Tensor, "4"]:
    """Does the same with `dyorc.empty`."""
    return total_values(shift_values_there(make_values_there(seed)))
