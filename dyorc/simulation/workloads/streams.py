"""Workflows that stream: a relay of programs that yield, one whose stages are fed with streams, and a loop of many turns whose
prompts differ in size."""

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import numpy as np

from dyorc.authoring.decisions import when
from dyorc.authoring.program import program
from dyorc.authoring.resident import Resident
from dyorc.authoring.workflow import workflow
from dyorc.simulation.value_draws import draw, draw_parts
from dyorc.simulation.workload import MAX_QUEUED_CALLS, Deployment, Number, Numbers, Workload, drawn_program


def yielding_program(name: str, max_parts: int, max_ongoing: int) -> Any:
    """Makes a program that takes a number and yields from 1 to `max_parts`, all drawn."""

    @program(name=name, batched=False, max_parts=max_parts, max_ongoing=max_ongoing, max_queued_calls=MAX_QUEUED_CALLS)
    async def compute(number: Number) -> AsyncIterator[Number]:
        for value in draw_parts(name, float(number), max_parts):
            yield np.array(value)

    return compute


listen = yielding_program("listen", 12, 16)
"""Hears phrases, one after another."""
translate = drawn_program("translate")
"""Translates a phrase."""
speak = yielding_program("speak", 6, 16)
"""Says a text, in pieces."""


def relay() -> Workload:
    """Makes an interpreter: three stages, each of which begins with what the one before has done so far."""

    @workflow(name="translated")
    async def translated(audio: Number) -> AsyncIterator[Number]:
        async for phrase in listen(audio):
            yield translate(phrase)

    @workflow(name="relay", programs=(listen, translate, speak))
    async def interpret(audio: Number) -> AsyncIterator[Number]:
        async for text in translated(audio):
            async for sound in speak(text):
                yield sound

    return Workload(
        "relay",
        interpret,
        (
            Deployment(program=listen, base_s=0.100, item_s=0.200, num_replicas=2),
            Deployment(program=translate, base_s=0.020, item_s=0.004, num_replicas=1),
            Deployment(program=speak, base_s=0.060, item_s=0.040, num_replicas=4),
        ),
    )


@program(name="follow", batched=False, max_ongoing=16, max_queued_calls=MAX_QUEUED_CALLS)
async def follow(phrases: AsyncIterator[Number]) -> AsyncIterator[Number]:
    """Translates phrases as they come."""
    async for phrase in phrases:
        yield np.array(draw("follow", np.array([phrase]))[0])


@program(name="summarise", batched=False, max_ongoing=16, max_queued_calls=MAX_QUEUED_CALLS)
async def summarise(texts: AsyncIterator[Number]) -> Number:
    """Reads all texts, and says what they come to."""
    columns = [np.array([text]) async for text in texts]
    return np.array(draw("summarise", *columns)[0])


def captions() -> Workload:
    """Makes captions: each stage reads the stream of the one before whole, while that grows; a summary follows the last."""

    @workflow(name="captions", programs=(listen, follow, summarise))
    async def caption(audio: Number) -> AsyncIterator[Number]:
        texts = follow(listen(audio))
        summary = summarise(texts)
        async for text in texts:
            yield text
        yield summary

    return Workload(
        "captions",
        caption,
        (
            Deployment(program=listen, base_s=0.100, item_s=0.200, num_replicas=2),
            Deployment(program=follow, base_s=0.020, item_s=0.050, num_replicas=1, mean_cost=6.5),
            Deployment(program=summarise, base_s=0.010, item_s=0.005, num_replicas=1, mean_cost=6.5),
        ),
    )


MIN_TURNS, MAX_TURNS = 20, 200
_END_RATIO = 1 / 60
_MAX_LENGTH = 1024


def _num_tokens(length: int) -> int:
    return length


_Cache = Resident[float]
"""What the model knows of a text so far; here, the number that its last call returned."""


@program(name="prefill", group="lm", max_batch_cost=2048, cost=_num_tokens, max_queued_calls=MAX_QUEUED_CALLS)
def prefill(prompt: Numbers, length: int) -> tuple[Numbers, _Cache]:
    """Reads a prompt of so many tokens."""
    numbers = draw("prefill", prompt)
    return numbers, numbers.tolist()


@program(name="decode", group="lm", max_batch_size=64, max_queued_calls=MAX_QUEUED_CALLS)
def decode(token: Numbers, cache: _Cache) -> tuple[Numbers, _Cache]:
    """Computes the next token."""
    numbers = draw("decode", token, np.array(cache))
    return numbers, numbers.tolist()


_TOKEN_BYTES = 128 * 1024
"""Of a cache, as of a model of a few billion parameters."""


def chat(max_resident_bytes: int | None = None) -> Workload:
    """Makes a chat: a prompt of 64 to 1,024 tokens, then a loop of 20 to 200 turns that yields a token at each.

    Args:
        max_resident_bytes: How much each process has for caches; None: no limit.
    """
    reads, says = (each.with_options(max_resident_bytes=max_resident_bytes) for each in (prefill, decode))

    @workflow(name="chat", programs=(reads, says))
    async def talk(prompt: Number) -> AsyncIterator[Number]:
        length = 64 * (1 + int(float(await cast(Any, prompt)) * _MAX_LENGTH / 64))
        token, cache = reads(prompt, length=length)
        for turn in range(MAX_TURNS):
            token, cache = says(token, cache)
            yield token
            if turn >= MIN_TURNS and await when(token, lambda token: token < _END_RATIO, likely=False):
                return

    return Workload(
        "chat",
        talk,
        (
            Deployment(
                program=reads, base_s=0.004, item_s=0.00002, num_replicas=2, mean_cost=544, resident_item_bytes=_TOKEN_BYTES
            ),
            Deployment(program=says, base_s=0.008, item_s=0.0001, num_replicas=2, resident_item_bytes=_TOKEN_BYTES),
        ),
    )


STREAMING: dict[str, Callable[[], Workload]] = {"captions": captions, "chat": chat, "relay": relay}
