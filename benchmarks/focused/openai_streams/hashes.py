"""A chat whose model does almost nothing: it says as many words as it may."""

from collections.abc import AsyncIterator

import dyorc
from dyorc.openai import ChatRequest

WORD_START = "#"
"""Begins each word, and stands nowhere else in an answer."""


@dyorc.program(batched=False)
async def say(num_words: int) -> AsyncIterator[str]:
    for number in range(num_words):
        yield f"{WORD_START}{number} "


@dyorc.workflow
async def hashes(request: ChatRequest) -> AsyncIterator[str]:
    """Says as many words as it may."""
    async for word in say(request.limit or 1):
        yield word
