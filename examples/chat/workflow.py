"""A small language model, served: every turn of every loop is a call, so all texts share batches, and guesses are a few lines.

dyorc serve examples/chat/workflow.py:chat examples/chat/workflow.py:chat_guarded \\
    examples/chat/workflow.py:chat_speculative examples/chat/workflow.py:best_of examples/chat/workflow.py:village
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from chat_guard import MIN_HARM
from chat_programs import MAX_TOKENS, NUM_FIRST, BeginDraft, Decode, Draft, Guarding, Prefill, Verify
from chat_tokens import END

import dyorc
from dyorc import Bytes
from dyorc.openai import ChatRequest

REFUSAL = b"I do not answer that."

prefill, decode, verify = Prefill(), Decode(), Verify()
begin_draft, draft = BeginDraft(), Draft()
guard = Guarding()


def is_end(token: int) -> bool:
    return token == END


def is_harmless(score: float) -> bool:
    return score < MIN_HARM


def room_of(max_tokens: int) -> int:
    """Returns how many tokens an answer may have: what was asked for, if the model has places for it."""
    return min(max(max_tokens, 1), MAX_TOKENS)


@dyorc.workflow
async def chat(question: Bytes[np.ndarray, ""], max_tokens: int = MAX_TOKENS) -> AsyncIterator[Bytes[np.ndarray, ""]]:
    first = prefill(question)
    token, text, cache = first["tokens"][0], first["texts"][0], first["cache"]
    for _ in range(room_of(max_tokens)):
        if await dyorc.when(token, is_end, likely=False):
            return
        yield text
        token, text, _, cache = decode(token, cache)


@dyorc.workflow
async def chat_guarded(question: Bytes[np.ndarray, ""], max_tokens: int = MAX_TOKENS) -> AsyncIterator[Bytes[np.ndarray, ""]]:
    if not await dyorc.when(guard(question), is_harmless, likely=True):
        yield REFUSAL
        return
    async for text in chat(question, max_tokens):
        yield text


@dyorc.workflow
async def chat_speculative(question: Bytes[np.ndarray, ""], max_tokens: int = MAX_TOKENS) -> AsyncIterator[Bytes[np.ndarray, ""]]:
    """Answers as `chat` does, token for token, several tokens at a time."""
    first = prefill(question)
    token, room, cache = first["tokens"][0], np.int64(room_of(max_tokens) - 1), first["cache"]
    guesses, draft_cache = begin_draft(question, token)
    if await dyorc.when(token, is_end, likely=False):
        return
    yield first["texts"][0]
    while True:
        said = verify(token, guesses, room, cache)
        yield said["text"]
        if await dyorc.when(said["is_over"], bool, likely=False):
            return
        guesses, draft_cache = draft(said["last"], said["num_right"], draft_cache)
        token, room, cache = said["last"][1], said["room"], said["cache"]


@dyorc.workflow
async def village(request: ChatRequest) -> AsyncIterator[Bytes[np.ndarray, ""]]:
    """`chat` for clients of OpenAI's API: answers the last message."""
    async for text in chat(request.messages[-1].text.encode(), request.limit or MAX_TOKENS):
        yield text


@dataclass
class Answer:
    """One of several answers to a question, as far as it goes. `cache` is a Ref."""

    cache: Any
    tokens: list[int] = field(default_factory=list[int])
    texts: list[bytes] = field(default_factory=list[bytes])
    scores: list[float] = field(default_factory=list[float])

    def add(self, token: int, text: bytes, score: float) -> None:
        self.tokens.append(token)
        self.texts.append(text)
        self.scores.append(score)


@dyorc.workflow
async def best_of(question: Bytes[np.ndarray, ""], num_answers: int = 3, max_tokens: int = MAX_TOKENS) -> Bytes[np.ndarray, ""]:
    """Begins an answer with each of the likeliest tokens, goes on with all of them side by side, and returns the likeliest one.

    All share the question's part of the cache.
    """
    first = prefill(question)
    begun = await dyorc.gather(first["tokens"], first["texts"], first["scores"])
    answers = [Answer(first["cache"]) for _ in range(min(max(num_answers, 1), NUM_FIRST))]
    for answer, *values in zip(answers, *begun, strict=False):
        answer.add(*values)
    for _ in range(room_of(max_tokens) - 1):
        growing = [answer for answer in answers if not is_end(answer.tokens[-1])]
        steps = [decode(answer.tokens[-1], answer.cache) for answer in growing]
        values = await dyorc.gather(*[step[output] for output in range(3) for step in steps])
        for at, (answer, step) in enumerate(zip(growing, steps, strict=True)):
            answer.add(*values[at :: len(steps)])
            answer.cache = step[3]
    best = max(answers, key=lambda answer: sum(answer.scores) / len(answer.scores))
    return b"".join(best.texts)
