"""Runs a request of OpenAI's API for a text: one run of a workflow for each choice, side by side."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, TypeAlias

from dyorc.gateway.http.openai.answer_text import AnswerChoice, TextPart


class ChoiceStep(NamedTuple):
    """Something new of a choice.

    Attributes:
        fields: Of a delta; may be empty.
        is_end: Whether nothing comes after it.
    """

    choice: AnswerChoice
    fields: dict[str, Any]
    is_end: bool


RunParts: TypeAlias = Callable[[], AsyncGenerator[list[TextPart]]]
"""Runs the workflow: yields parts that are ready at the same time together."""


async def steps_of(choice: AnswerChoice, run: RunParts) -> AsyncGenerator[list[ChoiceStep]]:
    """Yields the steps of a choice, together if their parts come together. After a stop text, the workflow is cancelled."""
    async with aclosing(run()) as parts:
        async for ready in parts:
            steps: list[ChoiceStep] = []
            for part in ready:
                if fields := choice.add(part):
                    steps.append(ChoiceStep(choice, fields, False))
                if choice.is_stopped:
                    break
            if steps:
                yield steps
            if choice.is_stopped:
                break
    yield [ChoiceStep(choice, choice.end(), True)]


async def side_by_side(choices: Sequence[AnswerChoice], runs: Sequence[RunParts]) -> AsyncGenerator[list[ChoiceStep]]:
    """Yields the steps of several choices as they come. The first error of one ends all."""
    if len(choices) == 1:
        async with aclosing(steps_of(choices[0], runs[0])) as together:
            async for steps in together:
                yield steps
        return
    queue: asyncio.Queue[list[ChoiceStep] | BaseException] = asyncio.Queue(len(choices))  # what is read slowly runs slowly

    async def feed(choice: AnswerChoice, run: RunParts) -> None:
        try:
            async with aclosing(steps_of(choice, run)) as together:
                async for steps in together:
                    await queue.put(steps)
        except Exception as error:
            await queue.put(error)

    tasks = [asyncio.ensure_future(feed(choice, run)) for choice, run in zip(choices, runs, strict=True)]
    try:
        num_open = len(choices)
        while num_open:
            steps = await queue.get()
            if isinstance(steps, BaseException):
                raise steps
            num_open -= steps[-1].is_end
            yield steps
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
