"""A module with vLLM's interface, which needs no GPU: its engine counts in place of thinking."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest


@dataclass
class Completion:
    text: str


@dataclass
class Output:
    outputs: list[Completion]
    finished: bool


class Tokenizer:
    def apply_chat_template(self, messages: list[dict[str, Any]], *, tokenize: bool, add_generation_prompt: bool) -> str:
        assert (tokenize, add_generation_prompt) == (False, True)
        return "".join(f"<{message['role']}>{message['content']}" for message in messages) + "<assistant>"


@dataclass
class CountingEngine:
    """Says the prompt's length, then numbers. A call goes on once as many run as it asks for."""

    arguments: dict[str, Any]
    num_running: int = 0
    most_running: int = 0
    are_together: asyncio.Event = field(default_factory=asyncio.Event)
    aborted: list[str] = field(default_factory=list[str])
    given: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])

    async def generate(self, prompt: str, parameters: dict[str, Any], request_id: str) -> AsyncGenerator[Output]:
        self.given.append((prompt, parameters))
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        try:
            text = f"{len(prompt)}:"
            num = parameters["max_tokens"]
            for token in range(num):
                text += f" {token}"
                yield Output([Completion(text)], token == num - 1)
                if self.most_running >= parameters.get("together", 0):
                    self.are_together.set()
                await self.are_together.wait()
                await asyncio.sleep(0)
        finally:
            self.num_running -= 1

    async def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)

    async def get_tokenizer(self) -> Tokenizer:
        return Tokenizer()


def install(monkeypatch: pytest.MonkeyPatch) -> list[CountingEngine]:
    """Puts this in vLLM's place; returns the engines, as they are made."""
    made: list[CountingEngine] = []

    def from_engine_args(arguments: dict[str, Any]) -> CountingEngine:
        made.append(CountingEngine(arguments))
        return made[-1]

    module: Any = ModuleType("vllm")
    module.AsyncEngineArgs = module.SamplingParams = dict
    module.AsyncLLMEngine = type("AsyncLLMEngine", (), {"from_engine_args": staticmethod(from_engine_args)})
    monkeypatch.setitem(sys.modules, "vllm", module)
    return made
