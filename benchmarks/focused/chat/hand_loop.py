"""Continuous batching by hand, without a server: the limit of what one core can do with this model.

A thread decodes; questions reach it through a queue, and it notes when each token was there.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from dataclasses import dataclass
from typing import Self

import torch

from benchmarks.focused.chat.answering import MAX_BATCH_SIZE, MAX_TOKENS, load_model, load_tokenizer, prompt_of
from benchmarks.focused.chat.load import Asked

from chat_cache import Cache  # isort: skip (found after `answering`)
from chat_tokens import END  # isort: skip


@dataclass(slots=True)
class _Row:
    asked: Asked
    over: asyncio.Event
    token: int
    cache: Cache
    tokens: list[int]


class HandLoop:
    """Decodes while entered; `ask` is an `Ask`."""

    def __init__(self) -> None:
        self._model = load_model()
        self._decode = load_tokenizer().decode
        self._arrived: queue.SimpleQueue[tuple[Asked, asyncio.Event] | None] = queue.SimpleQueue()
        self._is_over = False
        self._thread = threading.Thread(target=self._run)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._arrived.put(None)
        await asyncio.to_thread(self._thread.join)

    async def ask(self, asked: Asked) -> None:
        """Puts a question into the queue and waits for its answer."""
        over = asyncio.Event()
        self._arrived.put((asked, over))
        await over.wait()

    def give_up(self) -> None:
        """Forgets all questions."""
        self._is_over = True

    def _run(self) -> None:
        rows: list[_Row] = []
        while not self._is_over:
            joining: list[tuple[Asked, asyncio.Event]] = []
            while len(rows) + len(joining) < MAX_BATCH_SIZE and (not self._arrived.empty() or (not rows and not joining)):
                if (arrived := self._arrived.get()) is None:
                    return
                joining.append(arrived)
            if joining:
                scores, caches = self._model.prefill([prompt_of(asked.turn.question) for asked, _ in joining])
                tokens = scores.argmax(dim=1).tolist()
                rows += [_Row(*one, token, cache, []) for one, token, cache in zip(joining, tokens, caches, strict=True)]
            rows = [row for row in rows if self._goes_on(row)]
            if rows:
                scores, caches = self._model.decode(torch.tensor([row.token for row in rows]), [row.cache for row in rows])
                for row, token, cache in zip(rows, scores.argmax(dim=1).tolist(), caches, strict=True):
                    row.token, row.cache = token, cache

    def _goes_on(self, row: _Row) -> bool:
        now_ns = time.monotonic_ns()
        if row.token != END and len(row.tokens) < MAX_TOKENS:
            row.tokens.append(row.token)
            row.asked.part_ns.append(now_ns)
            return True
        row.asked.text, row.asked.done_ns = self._decode(row.tokens), now_ns
        self._loop.call_soon_threadsafe(row.over.set)
        return False
