"""MiniLM finds a question's topic, and that topic's expert the intent. The programs of `examples/router`, on held-out phrases."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.workloads.base import Call, Program, Tensors, TensorSpec, Workload
from benchmarks.workloads.examples import use_example

TOPICS = ("billing", "technical", "travel", "smalltalk")
"""The topics in the order of the router's scores, as in the example. Each has an expert, a program with its name."""
_MARGIN = 1e-3
"""Questions whose best two topics or intents are nearer than this are not sent: the size of the batch could decide."""
_CHUNK = 32
"""How many questions are drawn at a time."""
_TEXT = TensorSpec(dtype="bytes", shape=())
_TOKENS = TensorSpec(dtype="int64", shape=(32,))
_PROBABILITY = TensorSpec(dtype="float32", shape=())


def _tokenise() -> Callable[..., Tensors]:
    use_example("router")
    from router_minilm import Tokenizer

    tokenizer = Tokenizer()

    def run(text: np.ndarray[Any, Any]) -> Tensors:
        return {"tokens": np.array([tokenizer(each.decode(errors="replace")) for each in text.tolist()], np.int64)}

    return run


def _route() -> Callable[..., Tensors]:
    import torch

    use_example("router")
    from router_minilm import load_minilm
    from router_nets import load_centroids

    torch.set_num_threads(1)
    embed, centroids = load_minilm(), load_centroids()

    @torch.inference_mode()
    def run(tokens: np.ndarray[Any, Any]) -> Tensors:
        return {"scores": (embed(torch.from_numpy(tokens)) @ centroids.T).numpy()}

    return run


def _judge(topic: str) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """Returns the probabilities of a topic's intents."""
    import torch

    use_example("router")
    from router_nets import load_expert
    from router_texts import INTENTS

    torch.set_num_threads(1)
    net = load_expert(topic, len(INTENTS[topic]))

    @torch.inference_mode()
    def run(tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return net(torch.from_numpy(tokens)).softmax(dim=1).numpy()

    return run


def _expert(topic: str) -> Callable[..., Tensors]:
    judge = _judge(topic)
    from router_texts import INTENTS

    intents = np.array([intent.encode() for intent in INTENTS[topic]], object)

    def run(tokens: np.ndarray[Any, Any]) -> Tensors:
        probabilities = judge(tokens)
        return {"intent": intents[probabilities.argmax(axis=1)], "probability": probabilities.max(axis=1)}

    return run


def nearest(scores: np.ndarray[Any, Any]) -> str:
    """Returns the topic of a question, from the output of `route`."""
    return TOPICS[int(scores.argmax())]


async def _flow(call: Call, inputs: Tensors) -> tuple[dict[str, np.ndarray[Any, Any]], str]:
    tokens = (await call("tokenise", text=inputs["text"]))["tokens"]
    topic = nearest((await call("route", tokens=tokens))["scores"])
    outputs = await call(topic, tokens=tokens)
    return {
        "topic": _text(topic.encode()),
        "intent": _text(outputs["intent"].item()),
        "probability": outputs["probability"],
    }, topic


def _text(text: bytes) -> np.ndarray[Any, Any]:
    return np.array(text, object)


def _draw(num_requests: int, seed: int) -> list[dict[str, np.ndarray[Any, Any]]]:
    use_example("router")
    from router_texts import draw_questions

    questions = draw_questions(1 + num_requests // 18, seed, is_held_out=True)  # twice as many as wanted, or more
    texts = np.array([question.text.encode() for question in questions], object)
    tokens = _tokenise()(texts)["tokens"]
    route, judges = _route(), {topic: _judge(topic) for topic in TOPICS}
    chosen: list[int] = []
    for start in range(0, len(texts), _CHUNK):
        some = tokens[start : start + _CHUNK]
        scores = route(some)["scores"]
        leads = _leads(scores)
        for topic, judge in judges.items():
            own = np.array([nearest(row) == topic for row in scores])
            if own.any():
                leads[own] = np.minimum(leads[own], _leads(judge(some[own])))
        chosen += (start + np.flatnonzero(leads > _MARGIN)).tolist()
        if len(chosen) >= num_requests:
            break
    return [{"text": _text(texts[at])} for at in chosen[:num_requests]]


def _leads(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns by how much the highest value of each row leads."""
    highest = np.sort(values, axis=1)
    return highest[:, -1] - highest[:, -2]


def _expert_program(topic: str) -> Program:
    return Program(
        make=partial(_expert, topic),
        inputs={"tokens": _TOKENS},
        outputs={"intent": _TEXT, "probability": _PROBABILITY},
        max_batch_size=32,
    )


WORKLOAD = Workload(
    name="router",
    summary="a sentence encoder (MiniLM) sends a question to one of four experts",
    is_dynamic=True,
    slo_s=0.12,
    inputs={"text": _TEXT},
    outputs={"topic": _TEXT, "intent": _TEXT, "probability": _PROBABILITY},
    programs={
        "tokenise": Program(make=_tokenise, inputs={"text": _TEXT}, outputs={"tokens": _TOKENS}, max_batch_size=32),
        "route": Program(
            make=_route,
            inputs={"tokens": _TOKENS},
            outputs={"scores": TensorSpec(dtype="float32", shape=(4,))},
            max_batch_size=8,
        ),
        **{topic: _expert_program(topic) for topic in TOPICS},
    },
    flow=_flow,
    draw=_draw,
    app="benchmarks/workloads/router/app.py:router",
)
