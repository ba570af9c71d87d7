"""A recurrent net reads a noisy digit through a keyhole, turn by turn, until it is sure; see `refiner.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workloads.base import Call, Program, Tensors, TensorSpec, Workload

WIDTH = 1024
MAX_TURNS = 16
SURE = 0.85
"""The loop ends once the probability of being right reaches this. In the last turn the program returns 1."""
_MARGIN = 1e-3
"""Digits with a turn nearer to the threshold are not sent: the size of the batch could decide when they stop."""
_MAX_BATCH_SIZE = 32
_IMAGE = TensorSpec(dtype="float32", shape=(1, 8, 8))
_STATE = TensorSpec(dtype="float32", shape=(WIDTH,))
_PROBABILITIES = TensorSpec(dtype="float32", shape=(10,))
_ONE_INTEGER = TensorSpec(dtype="int64", shape=(1,))
_ONE = TensorSpec(dtype="float32", shape=(1,))

Array = np.ndarray[Any, Any]


def _refine() -> Callable[..., Tensors]:
    import torch

    from benchmarks.workloads.loop.refiner import load_refiner

    torch.set_num_threads(1)
    net = load_refiner()

    @torch.inference_mode()
    def run(image: Array, state: Array, turn: Array) -> Tensors:
        """Turns count from 0; items of a batch may be in different ones."""
        new, scores, halt = net(*(torch.from_numpy(array) for array in (image, state, turn)))
        sure = np.where(turn == MAX_TURNS - 1, np.float32(1), halt.sigmoid().numpy())
        return {"state": new.numpy(), "halt": sure, "probabilities": scores.softmax(dim=1).numpy()}

    return run


async def _flow(call: Call, inputs: Tensors) -> tuple[dict[str, Array], str]:
    state: Array = np.zeros(WIDTH, np.float32)
    num_turns = 0
    halted = False
    outputs: dict[str, Array] = {}
    while not halted:
        outputs = await call("refine", image=inputs["image"], state=state, turn=np.array([num_turns], np.int64))
        num_turns += 1
        state = outputs["state"]
        halted = bool(outputs["halt"][0] >= SURE)
    return {"probabilities": outputs["probabilities"], "turns": np.array([num_turns], np.int64)}, _branch(num_turns)


def _branch(num_turns: int) -> str:
    return "2-4 turns" if num_turns <= 4 else "5-8 turns" if num_turns <= 8 else "9-16 turns"


def _draw(num_requests: int, seed: int) -> list[dict[str, Array]]:
    """Draws held-out digits, each with its own noise. Digits repeat if there are more requests than digits."""
    import torch

    from benchmarks.workloads.loop.refiner import add_noise, all_turns, digits, load_refiner

    torch.set_num_threads(1)
    noise = torch.Generator().manual_seed(seed)
    images, _ = digits(is_held_out=True)
    chosen = torch.randint(len(images), (num_requests + num_requests // 4 + 8,), generator=noise)
    noisy = add_noise(images[chosen], noise)
    with torch.inference_mode():
        _, halts = all_turns(load_refiner(), noisy)
    is_clear = ((halts.sigmoid() - SURE).abs() > _MARGIN).all(dim=0)
    return [{"image": image} for image in noisy[is_clear][:num_requests].numpy()]


WORKLOAD = Workload(
    name="loop",
    summary="a recurrent net looks at a noisy digit until it is sure, at most 16 times",
    is_dynamic=True,
    slo_s=0.2,
    inputs={"image": _IMAGE},
    outputs={"probabilities": _PROBABILITIES, "turns": _ONE_INTEGER},
    programs={
        "refine": Program(
            make=_refine,
            inputs={"image": _IMAGE, "state": _STATE, "turn": _ONE_INTEGER},
            outputs={"state": _STATE, "halt": _ONE, "probabilities": _PROBABILITIES},
            max_batch_size=_MAX_BATCH_SIZE,
        )
    },
    flow=_flow,
    draw=_draw,
    app="benchmarks/workloads/loop/app.py:loop",
    tolerance=1e-3,
    num_drawn=256,
)
