"""A guard reads a message, and a generator continues it if it is harmless. The nets of `examples/guarded`, on held-out messages.

Both nets return the same bits in any batch, so no message needs to be left out, and answers have to be equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workloads.base import Call, Program, Tensors, TensorSpec, Workload
from benchmarks.workloads.examples import use_example

MIN_HARM = 1.0
"""From this score, a message is refused, as in the example."""
REFUSAL = b"[not continued]".ljust(32)
"""The answer to a refused message."""
_MESSAGE = TensorSpec(dtype="uint8", shape=(64,))
_CONTINUATION = TensorSpec(dtype="uint8", shape=(32,))


def _guard() -> Callable[..., Tensors]:
    import torch

    use_example("guarded")
    from guarded_nets import Guard, load_net

    torch.set_num_threads(1)
    net = load_net("guard", Guard())

    @torch.inference_mode()
    def run(text: np.ndarray[Any, Any]) -> Tensors:
        return {"score": net(torch.from_numpy(text)).numpy()}

    return run


def _generate() -> Callable[..., Tensors]:
    import torch

    use_example("guarded")
    from guarded_nets import Generator, load_net

    torch.set_num_threads(1)
    net = load_net("generator", Generator())

    @torch.inference_mode()
    def run(text: np.ndarray[Any, Any]) -> Tensors:
        return {"continuation": net.continue_text(torch.from_numpy(text)).numpy()}

    return run


async def _flow(call: Call, inputs: Tensors) -> tuple[dict[str, np.ndarray[Any, Any]], str]:
    judged = await call("guard", text=inputs["text"])
    if judged["score"] < MIN_HARM:
        return await call("generate", text=inputs["text"]), "continued"
    return {"continuation": np.frombuffer(REFUSAL, np.uint8)}, "refused"


def _draw(num_requests: int, seed: int) -> list[dict[str, np.ndarray[Any, Any]]]:
    use_example("guarded")
    from guarded_texts import HARMFUL_RATIO, draw_messages, encode

    messages = draw_messages(num_requests, HARMFUL_RATIO, seed, is_held_out=True)
    return [{"text": encode(message.text).numpy()} for message in messages]


WORKLOAD = Workload(
    name="guarded",
    summary="a generator continues a message if a guard finds it harmless",
    is_dynamic=True,
    slo_s=0.1,
    inputs={"text": _MESSAGE},
    outputs={"continuation": _CONTINUATION},
    programs={
        "guard": Program(
            make=_guard,
            inputs={"text": _MESSAGE},
            outputs={"score": TensorSpec(dtype="float32", shape=())},
            max_batch_size=32,
        ),
        "generate": Program(
            make=_generate, inputs={"text": _MESSAGE}, outputs={"continuation": _CONTINUATION}, max_batch_size=32
        ),
    },
    flow=_flow,
    draw=_draw,
    app="benchmarks/workloads/guarded/app.py:guarded",
    tolerance=0,
    num_drawn=512,
)
