"""The overhead benchmark's cascade as a DyOrc workflow.

Served with `dyorc serve cascade.py:cascade`. Its peer is `ray_serve_app.py`: the same networks, the same
condition, the same batch limit.
"""

import torch
from jaxtyping import Float
from torch import Tensor

import dyorc
from benchmarks.focused.overhead.nets import MAX_BATCH_SIZE, build_large, build_small, is_done


@dyorc.program(max_batch_size=MAX_BATCH_SIZE)
class Small:
    """The cheap first stage."""

    def __init__(self) -> None:
        self.net = build_small()

    @torch.inference_mode()
    def __call__(self, x: Float[Tensor, "batch 256"]) -> Float[Tensor, "batch 16"]:
        return self.net(x)


@dyorc.program(max_batch_size=MAX_BATCH_SIZE)
class Large:
    """The second stage, for the inputs the first could not settle."""

    def __init__(self) -> None:
        self.net = build_large()

    @torch.inference_mode()
    def __call__(self, x: Float[Tensor, "batch 256"]) -> Float[Tensor, "batch 16"]:
        return self.net(x)


small = Small()
large = Large()


@dyorc.workflow
async def cascade(x: Float[Tensor, "256"]) -> Float[Tensor, "16"]:
    """Answers with the first stage if it is sure, otherwise with the second."""
    y = small(x)
    if await dyorc.when(y, is_done):
        return y
    return large(x)
