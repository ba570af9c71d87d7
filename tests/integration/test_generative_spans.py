"""Spans of requests to OpenAI's API and of calls of tools say what OpenTelemetry's conventions for generative models ask for."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import openai
import pytest

from dyorc.config import GatewayConfig
from dyorc.core.trace_context import new_trace
from dyorc.telemetry.record import RequestRecord
from dyorc.telemetry.tracing.request_spans import spans_of
from tests.deadlines import wait_until_async
from tests.integration.stack import Stack, running
from tests.workflows import openai_models

pytest.importorskip("mcp")

from mcp import Client

MESSAGES: Any = [{"role": "user", "content": "one two three"}]


class LastRecord:
    """Keeps the record of the request that ended last."""

    def __init__(self) -> None:
        self.record: RequestRecord | None = None

    def wants(self) -> bool:
        return True

    def ended(self, record: RequestRecord) -> None:
        self.record = record

    def refused(self, outcome: str, record: Callable[[], RequestRecord]) -> None:
        self.record = record()

    async def attributes(self, until: str) -> dict[str, Any]:
        """Returns what the span of that request says, once it has this attribute. The next request has not come."""
        await wait_until_async(
            lambda: self.record is not None and until in self.record.origin.attributes, f"the request has ended, with {until}"
        )
        assert self.record is not None
        return {
            name: value
            for name, value in spans_of(self.record, new_trace(is_sampled=True))[0].attributes.items()
            if not name.startswith(("dyorc.", "http.", "network."))
        }


@pytest.fixture
def last() -> LastRecord:
    return LastRecord()


@pytest.fixture
async def stack(leaves_nothing: None, last: LastRecord) -> AsyncIterator[Stack]:
    targets = [openai_models.talker, openai_models.tooled, openai_models.writer, openai_models.embedder, openai_models.ranker]
    async with running(targets, gateway=GatewayConfig(port=0, drain_timeout_s=1, mcp=True), recorder=last) as started:
        yield started


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{stack.client.base_url}/v1", api_key="any", max_retries=0) as opened:
        yield opened


@pytest.mark.parametrize("streams", [False, True])
async def test_a_chat(client: openai.AsyncOpenAI, last: LastRecord, streams: bool) -> None:
    answer: Any = await client.chat.completions.create(
        model="tooled", messages=MESSAGES, stream=streams, temperature=0.5, top_p=0.9, max_completion_tokens=9, seed=3, stop="x",
        n=2, user="somebody",
    )  # fmt: skip
    ids = {chunk.id async for chunk in answer} if streams else {answer.id}
    assert await last.attributes("gen_ai.usage.output_tokens") == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "dyorc",
        "gen_ai.request.model": "tooled",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.seed": 3,
        "gen_ai.request.stop_sequences": ["x"],
        "gen_ai.request.choice.count": 2,
        "gen_ai.response.id": ids.pop(),
        "gen_ai.response.model": "tooled",
        "gen_ai.response.finish_reasons": ["tool_calls", "tool_calls"],
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 10,
        "user.id": "somebody",
    }


async def test_other_operations(client: openai.AsyncOpenAI, stack: Stack, last: LastRecord) -> None:
    await client.completions.create(model="writer", prompt="a", max_tokens=2)
    text = await last.attributes("gen_ai.usage.output_tokens")
    assert (text["gen_ai.operation.name"], text["gen_ai.usage.output_tokens"]) == ("text_completion", 2)
    assert text["gen_ai.response.finish_reasons"] == ["stop"]
    response = await client.responses.create(model="talker", input="a b")
    chat = await last.attributes("gen_ai.usage.output_tokens")
    assert (chat["gen_ai.operation.name"], chat["gen_ai.response.id"]) == ("chat", response.id)
    await client.embeddings.create(model="embedder", input=["a"], dimensions=3, encoding_format="float")
    assert await last.attributes("gen_ai.embeddings.dimension.count") == {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "dyorc",
        "gen_ai.request.model": "embedder",
        "gen_ai.request.encoding_formats": ["float"],
        "gen_ai.embeddings.dimension.count": 3,
    }
    await stack.client.post("/v1/rerank", json={"model": "ranker", "query": "a", "documents": ["a"]})
    assert (await last.attributes("gen_ai.operation.name"))["gen_ai.operation.name"] == "rerank"


async def test_a_failed_chat_says_why(client: openai.AsyncOpenAI, last: LastRecord) -> None:
    with pytest.raises(openai.InternalServerError):
        await client.chat.completions.create(model="talker", messages=[{"role": "user", "content": "fail"}])
    assert await last.attributes("gen_ai.request.model") == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "dyorc",
        "gen_ai.request.model": "talker",
        "error.type": "program",
    }


async def test_a_call_of_a_tool(stack: Stack, last: LastRecord) -> None:
    async with Client(f"{str(stack.client.base_url).rstrip('/')}/mcp") as agent:
        await agent.call_tool("talker", {"request": {"model": "talker", "messages": MESSAGES}})
    assert await last.attributes("gen_ai.tool.name") == {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "talker"}
