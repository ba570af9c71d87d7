"""A small net reads a digit; if it is unsure, a large one reads it too. The nets of `examples/digits`, on held-out digits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.workloads.base import Call, Program, Tensors, TensorSpec, Workload
from benchmarks.workloads.examples import use_example

CONFIDENT = 0.9
"""From this probability, the small net's answer counts, as in the example."""
_MARGIN = 1e-3
"""Digits whose probability is nearer to the threshold are not sent: the size of the batch could decide their branch."""
_IMAGE = TensorSpec(dtype="float32", shape=(1, 8, 8))
_PROBABILITIES = TensorSpec(dtype="float32", shape=(10,))


def _net(name: str) -> Callable[..., Tensors]:
    import torch

    use_example("digits")
    import digits_nets

    torch.set_num_threads(1)
    net = digits_nets.load_net(name, getattr(digits_nets, f"{name}_net")())

    @torch.inference_mode()
    def run(image: np.ndarray[Any, Any]) -> Tensors:
        return {"probabilities": net(torch.from_numpy(image)).softmax(dim=1).numpy()}

    return run


async def _flow(call: Call, inputs: Tensors) -> tuple[dict[str, np.ndarray[Any, Any]], str]:
    outputs = await call("small", image=inputs["image"])
    if outputs["probabilities"].max() >= CONFIDENT:
        return outputs, "small"
    return await call("large", image=inputs["image"]), "large"


def _draw(num_requests: int, seed: int) -> list[dict[str, np.ndarray[Any, Any]]]:
    use_example("digits")
    from digits_nets import digits

    images = digits(is_held_out=True)[0].numpy()
    doubts = np.abs(_net("small")(images)["probabilities"].max(axis=1) - CONFIDENT)
    chosen = np.random.default_rng(seed).permutation(np.flatnonzero(doubts > _MARGIN))
    return [{"image": images[at]} for at in chosen[:num_requests]]


def _program(name: str) -> Program:
    return Program(
        make=partial(_net, name), inputs={"image": _IMAGE}, outputs={"probabilities": _PROBABILITIES}, max_batch_size=64
    )


WORKLOAD = Workload(
    name="cascade",
    summary="a small net reads a digit; if it is unsure, a large one reads it too",
    is_dynamic=True,
    slo_s=0.025,
    inputs={"image": _IMAGE},
    outputs={"probabilities": _PROBABILITIES},
    programs={"small": _program("small"), "large": _program("large")},
    flow=_flow,
    draw=_draw,
    app="benchmarks/workloads/cascade/app.py:cascade",
    num_drawn=512,
)
