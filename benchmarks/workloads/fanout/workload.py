"""Reads a number from a strip: finds the digits on it, and reads each with the cascade's programs.

The strips are held-out digits of scikit-learn side by side; the nets are those of `examples/digits`. A strip holds from 1 to 16
digits, mostly few, so requests differ widely in their work, and an answer has to wait for the slowest of its pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.workloads.base import Call, Program, Tensors, TensorSpec, Workload
from benchmarks.workloads.cascade.workload import CONFIDENT
from benchmarks.workloads.cascade.workload import WORKLOAD as CASCADE
from benchmarks.workloads.examples import use_example
from benchmarks.workloads.fanout.strips import MAX_PIECES, WIDTHS, draw_strip, find_pieces

PIECE_WIDTH = 8
_MARGIN = 1e-3
"""Strips are not sent if a piece's probability is nearer to the threshold, or its best two digits nearer to each other: the size
of the batch could decide."""
_MEAN_PIECES = 6
_STRIP = TensorSpec(dtype="float32", shape=(1, 8, -1))
_COUNT = TensorSpec(dtype="int32", shape=())
_PIECES = TensorSpec(dtype="int32", shape=(MAX_PIECES,))


def _find() -> Callable[..., Tensors]:
    def run(strip: np.ndarray[Any, Any]) -> Tensors:
        columns = np.full((len(strip), MAX_PIECES), -1, np.int32)
        counts = np.zeros(len(strip), np.int32)
        for at, picture in enumerate(strip):
            pieces = find_pieces(picture[0])
            counts[at] = len(pieces)
            columns[at, : len(pieces)] = pieces
        return {"count": counts, "columns": columns}

    return run


def digits_of(probabilities: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Returns the digits that have been read, padded with -1."""
    digits = np.full(MAX_PIECES, -1, np.int32)
    digits[: len(probabilities)] = [each.argmax() for each in probabilities]
    return digits


async def _read(call: Call, image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns the probabilities of one piece's digits."""
    outputs = await call("small", image=image)
    if outputs["probabilities"].max() < CONFIDENT:
        outputs = await call("large", image=image)
    return outputs["probabilities"]


async def _flow(call: Call, inputs: Tensors) -> tuple[dict[str, np.ndarray[Any, Any]], str]:
    strip = inputs["strip"]
    pieces = await call("find", strip=strip)
    starts = pieces["columns"][: int(pieces["count"])].tolist()
    read = await asyncio.gather(*(_read(call, strip[:, :, at : at + PIECE_WIDTH]) for at in starts))
    return {"digits": digits_of(read), "count": np.array(len(read), np.int32)}, _branch(len(read))


def _branch(num_pieces: int) -> str:
    return "1-3" if num_pieces <= 3 else "4-8" if num_pieces <= 8 else "9+"


def _draw(num_requests: int, seed: int) -> list[dict[str, np.ndarray[Any, Any]]]:
    use_example("digits")
    from digits_nets import digits

    images = digits(is_held_out=True)[0].numpy()[:, 0]
    nets = [CASCADE.programs[name].make() for name in ("small", "large")]
    rng = np.random.default_rng(seed)
    chosen: list[dict[str, np.ndarray[Any, Any]]] = []
    while len(chosen) < num_requests:
        num_pieces = min(int(rng.geometric(1 / _MEAN_PIECES)), MAX_PIECES)
        strip = draw_strip(images[rng.integers(len(images), size=num_pieces)], rng)
        if not _is_close(strip, *nets):
            chosen.append({"strip": strip})
    return chosen


def _is_close(strip: np.ndarray[Any, Any], small: Callable[..., Tensors], large: Callable[..., Tensors]) -> bool:
    """Whether a rounding error could change the answer or its branch."""
    pieces = np.stack([strip[:, :, at : at + PIECE_WIDTH] for at in find_pieces(strip[0])])
    read = small(image=pieces)["probabilities"]
    doubts = np.abs(read.max(axis=1) - CONFIDENT)
    second = np.sort(np.where(read.max(axis=1, keepdims=True) < CONFIDENT, large(image=pieces)["probabilities"], read), axis=1)
    return bool(min(doubts.min(), (second[:, -1] - second[:, -2]).min()) < _MARGIN)


WORKLOAD = Workload(
    name="fanout",
    summary="a detector finds the digits on a strip, and a cascade reads each of them",
    is_dynamic=True,
    slo_s=0.04,
    inputs={"strip": _STRIP},
    outputs={"digits": _PIECES, "count": _COUNT},
    programs={
        "find": Program(
            make=_find,
            inputs={"strip": _STRIP},
            outputs={"count": _COUNT, "columns": _PIECES},
            max_batch_size=16,
            widths=WIDTHS,
        ),
        **CASCADE.programs,
    },
    flow=_flow,
    draw=_draw,
    app="benchmarks/workloads/fanout/app.py:fanout",
    num_drawn=512,
)
