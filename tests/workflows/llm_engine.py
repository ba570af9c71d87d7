"""Programs that wait for an engine with batches of its own, and yield what it makes: a stand-in for vLLM's `AsyncLLM`."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import numpy as np
from jaxtyping import Int

import dyorc
from dyorc import Bytes

Text = Bytes[np.ndarray, ""]
Number = Int[np.ndarray, ""]


@dataclass(frozen=True)
class SamplingParams:
    """How many words are made."""

    max_tokens: int


@dataclass(frozen=True)
class CompletionOutput:
    """All words so far."""

    text: str


@dataclass(frozen=True)
class RequestOutput:
    """What the engine has made for a request so far."""

    request_id: str
    outputs: list[CompletionOutput]
    finished: bool


@dataclass
class _Running:
    prompt: str
    max_tokens: int
    outputs: asyncio.Queue[RequestOutput] = field(default_factory=asyncio.Queue[RequestOutput])
    num_words: int = 0


class FakeLLM:
    """Has the interface of vLLM's `AsyncLLM`, as far as programs use it: it makes one word a step for all requests together."""

    def __init__(self) -> None:
        self.running: dict[str, _Running] = {}
        self.num_aborted = 0
        self.num_finished = 0
        self.max_together = 0
        self._has_work = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def generate(self, prompt: str, sampling_params: SamplingParams, request_id: str) -> AsyncIterator[RequestOutput]:
        """Yields the outputs of a request; aborts it if the caller goes away."""
        request = self.running[request_id] = _Running(prompt, sampling_params.max_tokens)
        self._has_work.set()
        try:
            while True:
                output = await request.outputs.get()
                yield output
                if output.finished:
                    return
        except (asyncio.CancelledError, GeneratorExit):
            await self.abort(request_id)
            raise

    async def abort(self, request_id: str) -> None:
        """Drops a request."""
        if self.running.pop(request_id, None) is not None:
            self.num_aborted += 1

    async def _work(self) -> None:
        while True:
            self._has_work.clear()
            if not self.running:
                await self._has_work.wait()
            self.max_together = max(self.max_together, len(self.running))
            for request_id, request in list(self.running.items()):
                request.num_words += 1
                is_last = request.num_words >= request.max_tokens
                text = " ".join(f"{request.prompt}{number}" for number in range(request.num_words))
                request.outputs.put_nowait(RequestOutput(request_id, [CompletionOutput(text)], is_last))
                if is_last:
                    del self.running[request_id]
                    self.num_finished += 1
            await asyncio.sleep(0.005)


_llms: list[FakeLLM] = []


@dyorc.program(batched=False, max_ongoing=64)
class Talk:
    """Yields each new piece of text."""

    def __init__(self) -> None:
        self.llm = FakeLLM()
        _llms.append(self.llm)

    async def __call__(self, prompt: Text, num_words: Number) -> AsyncIterator[Text]:
        length = 0
        try:
            async for output in self.llm.generate(prompt.item().decode(), SamplingParams(int(num_words)), uuid4().hex):
                text = output.outputs[0].text
                yield np.array(text[length:].encode(), object)
                length = len(text)
        finally:
            if "TALKING_LOG" in os.environ:
                with Path(os.environ["TALKING_LOG"]).open("a") as log:  # noqa: ASYNC230 -- a line
                    log.write("closed\n")


@dyorc.program(batched=False, pure=False)
async def look(x: Number) -> Int[np.ndarray, "4"]:
    """Returns how many requests run, were aborted, have finished, and have run together at most."""
    llm = _llms[-1]
    return np.array([len(llm.running), llm.num_aborted, llm.num_finished, llm.max_together])


talk = Talk()


@dyorc.workflow
async def chat(prompt: Text, num_words: Number) -> AsyncIterator[Text]:
    """Sends each piece of text as it is made."""
    async for piece in talk(prompt, num_words):
        yield piece


@dyorc.workflow
async def state(x: Number) -> Int[np.ndarray, "4"]:
    """Returns what `look` sees."""
    return look(x)
