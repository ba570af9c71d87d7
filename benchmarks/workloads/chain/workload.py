"""Three programs in sequence that do little but read and write 8 MB each, so that the transport between them counts.

They are the programs of `benchmarks/focused/chain`. The first two also take a place to write to: a system that has memory which
others can read without a copy passes it as `out`; without it, they allocate their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workloads.base import Call, Program, Tensors, TensorSpec, Workload

NUM_VALUES = 2_000_000
"""float32 values between the programs: 8 MB."""
NUM_TOTALS = 4
OFFSET = 0.5
_MAX_BATCH_SIZE = 4
_SEED = TensorSpec(dtype="float32", shape=(1,))
_VALUES = TensorSpec(dtype="float32", shape=(NUM_VALUES,))
_TOTALS = TensorSpec(dtype="float32", shape=(NUM_TOTALS,))

Array = np.ndarray[Any, Any]


def _make() -> Callable[..., Tensors]:
    import torch

    torch.set_num_threads(1)
    ramp = torch.linspace(-1.0, 2.0, NUM_VALUES)  # no two quarters of it have the same mean

    @torch.inference_mode()
    def run(seed: Array, out: Array | None = None) -> Tensors:
        """Shapes: (batch, 1) -> (batch, NUM_VALUES)."""
        values = np.empty((len(seed), NUM_VALUES), np.float32) if out is None else out
        torch.mul(torch.from_numpy(seed), ramp, out=torch.from_numpy(values))
        return {"values": values}

    return run


def _shift() -> Callable[..., Tensors]:
    import torch

    torch.set_num_threads(1)

    @torch.inference_mode()
    def run(values: Array, out: Array | None = None) -> Tensors:
        """Shapes: (batch, NUM_VALUES) -> the same."""
        shifted = np.empty(values.shape, np.float32) if out is None else out
        torch.add(torch.from_numpy(values), OFFSET, out=torch.from_numpy(shifted))
        return {"shifted": shifted}

    return run


def _total() -> Callable[..., Tensors]:
    import torch

    torch.set_num_threads(1)

    @torch.inference_mode()
    def run(shifted: Array) -> Tensors:
        """The mean of each quarter. Shapes: (batch, NUM_VALUES) -> (batch, NUM_TOTALS)."""
        return {"totals": torch.from_numpy(shifted).reshape(len(shifted), NUM_TOTALS, -1).mean(dim=2).numpy()}

    return run


async def _flow(call: Call, inputs: Tensors) -> tuple[dict[str, Array], str]:
    made = await call("make", seed=inputs["seed"])
    shifted = await call("shift", values=made["values"])
    return await call("total", shifted=shifted["shifted"]), "all"


def _draw(num_requests: int, seed: int) -> list[dict[str, Array]]:
    seeds = np.random.default_rng(seed).uniform(-1.0, 1.0, (num_requests, 1)).astype(np.float32)
    return [{"seed": each} for each in seeds]


WORKLOAD = Workload(
    name="chain",
    summary="three programs in sequence pass 8 MB to each other",
    is_dynamic=False,
    slo_s=0.04,
    inputs={"seed": _SEED},
    outputs={"totals": _TOTALS},
    programs={
        "make": Program(make=_make, inputs={"seed": _SEED}, outputs={"values": _VALUES}, max_batch_size=_MAX_BATCH_SIZE),
        "shift": Program(make=_shift, inputs={"values": _VALUES}, outputs={"shifted": _VALUES}, max_batch_size=_MAX_BATCH_SIZE),
        "total": Program(make=_total, inputs={"shifted": _VALUES}, outputs={"totals": _TOTALS}, max_batch_size=_MAX_BATCH_SIZE),
    },
    flow=_flow,
    draw=_draw,
    app="benchmarks/workloads/chain/app.py:chain",
    tolerance=1e-3,  # a mean of 500,000 float32 values
)
