"""OpenAI's API, by the official client. What a model answers is what plain Python says (`reply_to`)."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from dyorc.config import GatewayConfig
from dyorc.core.request import Terms
from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from dyorc.models.submission import Submission
from dyorc.openai import ChatRequest
from tests.deadlines import wait_until_async
from tests.integration.openai_stack import openai_client, openai_server
from tests.integration.stack import Stack, running
from tests.workflows import openai_models

TEXT = "one two three four"


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    async with openai_server(max_request_bytes=2**20) as started:
        yield started


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai_client(stack) as opened:
        yield opened


def messages(text: str = TEXT) -> Any:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]


def expected(text: str = TEXT, **fields: Any) -> str:
    return "".join(openai_models.reply_to(ChatRequest(model="m", messages=messages(text), **fields)))


def in_flight(stack: Stack) -> int:
    """Returns how many requests the orchestrator has."""
    return sum(each.in_flight for each in stack.orchestrator.levels().workflows.values())


async def test_models(client: openai.AsyncOpenAI) -> None:
    models = [model.id async for model in client.models.list()]
    assert models == sorted(workflow.name for workflow in openai_models.ALL), "and no others, which take no such requests"
    assert (await client.models.retrieve("talker")).owned_by == "dyorc"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("sums")


@pytest.mark.parametrize("model", ["talker", "silent"])
async def test_a_whole_answer(client: openai.AsyncOpenAI, model: str) -> None:
    answer = await client.chat.completions.create(model=model, messages=messages())
    assert answer.choices[0].message.content == expected()
    assert (answer.choices[0].finish_reason, answer.model, answer.object) == ("stop", model, "chat.completion")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == (4 if model == "talker" else 1)


@pytest.mark.parametrize("model", ["talker", "silent"])
async def test_a_stream(client: openai.AsyncOpenAI, model: str) -> None:
    stream = await client.chat.completions.create(
        model=model, messages=messages(), stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == expected()
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert not chunks[-1].choices
    assert len({chunk.id for chunk in chunks}) == 1


async def test_content_in_parts(client: openai.AsyncOpenAI) -> None:
    parts: Any = [
        {"type": "text", "text": "a b"},
        {"type": "image_url", "image_url": {"url": "data:,"}},
        {"type": "text", "text": " c"},
    ]
    answer = await client.chat.completions.create(model="talker", messages=[{"role": "user", "content": parts}])
    assert answer.choices[0].message.content == "c b a "


@pytest.mark.parametrize("stops", ["three", ["two", "ree"], ["nothing"], " t", ["our three "]])
@pytest.mark.parametrize("streams", [False, True])
async def test_stop_texts_cut_the_answer(client: openai.AsyncOpenAI, stops: str | list[str], streams: bool) -> None:
    whole = expected()
    cuts = [whole.find(stop) for stop in ([stops] if isinstance(stops, str) else stops)]
    cut = whole[: min((at for at in cuts if at >= 0), default=len(whole))]
    if streams:
        stream = await client.chat.completions.create(model="talker", messages=messages(), stop=stops, stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == cut
    else:
        answer = await client.chat.completions.create(model="talker", messages=messages(), stop=stops)
        assert answer.choices[0].message.content == cut


async def test_a_stop_text_ends_a_workflow_that_would_not_end(client: openai.AsyncOpenAI, stack: Stack) -> None:
    answer = await client.chat.completions.create(model="endless", messages=messages(), stop="tick tick tick")
    assert answer.choices[0].message.content == ""
    await wait_until_async(lambda: not in_flight(stack), "the request is cancelled")


async def test_limits_and_several_choices(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="talker", messages=messages(), max_completion_tokens=2, n=3)
    assert [choice.message.content for choice in answer.choices] == [expected(max_tokens=2)] * 3
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert answer.choices[0].finish_reason == "stop", "the workflow does not say that it was cut"
    stream = await client.chat.completions.create(model="talker", messages=messages(), n=3, stream=True)
    texts = ["", "", ""]
    async for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == [expected()] * 3


TOOLS: Any = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


async def test_calls_of_tools(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="tooled", messages=messages(), tools=TOOLS)
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert (call.id, call.function.name, json.loads(call.function.arguments)) == ("call_1", "weather", {"city": "Bern"})
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (7, 12)
    arguments = ""
    async with client.chat.completions.stream(model="tooled", messages=messages(), tools=TOOLS) as stream:
        async for event in stream:
            if event.type == "tool_calls.function.arguments.done":
                arguments = event.arguments
    assert json.loads(arguments) == {"city": "Bern"}


async def test_completions(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model="writer", prompt=["a", "b"], max_tokens=2, n=2)
    assert [choice.text for choice in answer.choices] == ["a0a1", "a0a1", "b0b1", "b0b1"]
    stream = await client.completions.create(model="writer", prompt="a", stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == "a0a1a2"
    assert (await client.completions.create(model="talker", prompt=TEXT)).choices[0].text == expected()


async def test_responses(client: openai.AsyncOpenAI) -> None:
    answer = await client.responses.create(model="talker", input=TEXT, instructions="Be brief.")
    assert (answer.output_text, answer.status) == (expected(), "completed")
    given: Any = [{"role": "user", "content": [{"type": "input_text", "text": TEXT}]}]
    events = []
    async with client.responses.stream(model="talker", input=given) as stream:
        async for event in stream:
            events.append(event.type)
        final = await stream.get_final_response()
    assert final.output_text == expected()
    assert events[0] == "response.created"
    assert events[-1] == "response.completed"
    short = await client.responses.create(model="limited", input=TEXT, max_output_tokens=1)
    assert (short.status, short.incomplete_details and short.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    tools: Any = [{"type": "function", "name": "weather", "parameters": {"type": "object"}}]
    called = await client.responses.create(model="tooled", input=TEXT, tools=tools)
    (call,) = [item for item in called.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Bern"})
    with pytest.raises(openai.BadRequestError, match="no responses are kept"):
        await client.responses.create(model="talker", input=TEXT, previous_response_id="resp_1")


async def test_embeddings(client: openai.AsyncOpenAI) -> None:
    texts = ["a", "banana", ""]
    for encoding in ("float", "base64", openai.omit):
        answer = await client.embeddings.create(model="embedder", input=texts, encoding_format=encoding)  # type: ignore[arg-type]
        if encoding != "base64":
            assert [each.embedding for each in answer.data] == [openai_models.vector_of(text) for text in texts]
    assert len((await client.embeddings.create(model="embedder", input="a")).data) == 1
    with pytest.raises(openai.BadRequestError):
        await client.embeddings.create(model="embedder", input=[])


async def test_rerank(stack: Stack) -> None:
    body = {"model": "ranker", "query": "a", "documents": ["b", "banana", {"text": "a"}], "top_n": 2, "return_documents": True}
    results = (await stack.client.post("/v1/rerank", json=body)).json()["results"]
    assert [(each["index"], each["relevance_score"], each["document"]["text"]) for each in results] == [
        (1, 3.0, "banana"),
        (2, 1.0, "a"),
    ]


async def test_raw_responses_carry_the_ids_of_requests(client: openai.AsyncOpenAI) -> None:
    raw = await client.chat.completions.with_raw_response.create(
        model="talker", messages=messages(), extra_headers={"X-Request-Id": "mine"}
    )
    assert raw.headers["x-request-id"] == "mine"
    assert raw.parse().choices[0].message.content == expected()


async def test_the_trace_of_a_client_comes_back(stack: Stack) -> None:
    sent = f"00-{'a' * 32}-{'b' * 16}-01"
    body = {"model": "talker", "messages": messages()}
    headers = {"traceparent": sent, "X-Request-Id": "mine"}
    for path in ("/v1/chat/completions", "/v2/models/sums/infer", "/run/sums", "/v1/chat/none"):
        answer = await stack.client.post(path, json=body, headers=headers)
        assert (answer.headers["traceparent"], answer.headers["x-request-id"]) == (sent, "mine"), path
    assert "traceparent" not in (await stack.client.post("/v1/chat/completions", json=body)).headers


@pytest.mark.parametrize(
    ("fields", "headers", "priority"),
    [
        ({}, {}, 0),
        ({}, {"X-Priority": "3"}, 3),
        ({"service_tier": "priority"}, {"X-Priority": "3"}, 1),
        ({"service_tier": "priority", "priority": 2}, {}, 2),
        ({"priority": 2}, {"X-Priority": "3"}, 2),
        ({"user": "somebody"}, {}, 0),
    ],
)
async def test_priorities(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], headers: dict[str, str], priority: int
) -> None:
    terms: list[Terms] = []
    stream = stack.orchestrator.stream

    def noting(submission: Submission, **arguments: Any) -> Any:
        terms.append(submission.terms)
        return stream(submission, **arguments)

    monkeypatch.setattr(stack.orchestrator, "stream", noting)
    body = {"model": "talker", "messages": messages()} | fields
    assert (await stack.client.post("/v1/chat/completions", json=body, headers=headers)).status_code == 200
    assert [(each.priority, each.tenant) for each in terms] == [(priority, "")]


@pytest.mark.parametrize("priority", ["-1", "high", "2147483648", "1.5"])
async def test_a_malformed_priority(stack: Stack, priority: str) -> None:
    body = {"model": "talker", "messages": messages()}
    answer = await stack.client.post("/v1/chat/completions", json=body, headers={"X-Priority": priority})
    assert answer.status_code == 400
    assert f"X-Priority is '{priority}', expected a number from 0" in answer.json()["error"]["message"]


async def test_a_request_may_not_take_all_places(client: openai.AsyncOpenAI, stack: Stack) -> None:
    with pytest.raises(openai.BadRequestError, match="300 prompts with 'n' 16 are 4800 answers, expected at most 128") as refused:
        await client.completions.create(model="writer", prompt=["a"] * 300, n=16)
    assert refused.value.param == "prompt"
    answer = await client.completions.create(model="writer", prompt=["a"] * 8, n=16, max_tokens=1)
    assert [choice.text for choice in answer.choices] == ["a0"] * 128
    assert stack.service.admission.num_requests == 0


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"content": 1}', "'content'"),
        ('{"tool_calls": [{"index": "x"}]}', "'tool_calls.0.index'"),
        ('{"tool_calls": [{"function": "f"}]}', "'tool_calls.0.function'"),
        ('{"usage": {"prompt_tokens": "many"}}', "'usage.prompt_tokens'"),
    ],
)
async def test_a_malformed_delta_is_named(client: openai.AsyncOpenAI, text: str, field: str, streams: bool) -> None:
    with pytest.raises(openai.InternalServerError) as failure:
        await client.chat.completions.create(model="loose", messages=messages(text), stream=streams)
    assert f"of the workflow is no dyorc.openai.ChatDelta: {field}" in str(failure.value)


async def test_calls_of_tools_without_an_index_are_numbered(client: openai.AsyncOpenAI) -> None:
    text = '{"tool_calls": [{"id": "1", "function": {"name": "f"}}, {"id": "2", "function": {"name": "g"}}]}'
    answer = await client.chat.completions.create(model="loose", messages=messages(text))
    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    assert [(call.id, call.type == "function" and call.function.name) for call in calls] == [("1", "f"), ("2", "g")]


async def test_malformed_requests_for_responses(stack: Stack) -> None:
    good = {"model": "talker", "input": TEXT}
    for change, param in (
        ({"tools": 3}, "tools"),
        ({"tools": [3]}, "tools.0"),
        ({"input": [{"role": "user", "content": [1]}]}, "input.0.content.0"),
        ({"input": 3}, "input.str"),
        ({"instructions": [1]}, "instructions"),
        ({"metadata": 3}, "metadata"),
    ):
        answer = await stack.client.post("/v1/responses", json=good | change)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


async def test_an_error_in_the_middle_of_a_response(client: openai.AsyncOpenAI) -> None:
    events = [event async for event in await client.responses.create(model="talker", input="break one", stream=True)]
    assert events[-1].type == "response.failed"
    response = events[-1].response
    assert (response.status, response.output_text) == ("failed", "one ")
    assert response.error is not None
    assert response.error.code == "server_error"
    assert "it breaks" in response.error.message
    assert [event.sequence_number for event in events] == list(range(len(events)))


async def test_errors(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        await client.chat.completions.create(model="nobody", messages=messages())
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError, match="takes no ChatRequest"):
        await client.chat.completions.create(model="embedder", messages=messages())
    with pytest.raises(openai.BadRequestError) as empty:
        await client.chat.completions.create(model="talker", messages=[])
    assert (empty.value.param, empty.value.type) == ("messages", "invalid_request_error")
    with pytest.raises(openai.BadRequestError, match="n"):
        await client.chat.completions.create(model="talker", messages=messages(), n=0)
    with pytest.raises(openai.InternalServerError, match="it fails"):
        await client.chat.completions.create(model="talker", messages=messages("fail"))


async def test_an_error_in_the_middle_of_a_stream(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model="talker", messages=messages("break one"), stream=True)
    texts: list[str] = []

    async def read() -> None:
        async for chunk in stream:
            texts.append(chunk.choices[0].delta.content or "")

    with pytest.raises(openai.APIError, match="it breaks"):
        await read()
    assert "".join(texts) == "one "


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b"\xff", b"[" * 10_000, b'{"model": 3, "messages": [{"role": "user"}]}', b'{"model": "talker"}'],
    ids=repr,
)
async def test_malformed_requests_are_refused_in_the_form_of_the_api(stack: Stack, body: bytes) -> None:
    answer = await stack.client.post("/v1/chat/completions", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_other_methods_and_too_large_bodies(stack: Stack) -> None:
    assert (await stack.client.get("/v1/chat/completions")).status_code == 405
    answer = await stack.client.post("/v1/chat/completions", content=b" " * (2**20 + 1))
    assert (answer.status_code, answer.json()["error"]["type"]) == (413, "invalid_request_error")


async def test_a_client_that_goes_away_ends_its_request(client: openai.AsyncOpenAI, stack: Stack) -> None:
    stream = await client.chat.completions.create(model="endless", messages=messages(), stream=True)
    async for _ in stream:
        break
    await stream.close()
    await wait_until_async(lambda: not in_flight(stack), "the request is cancelled")
    waiting = asyncio.ensure_future(client.chat.completions.create(model="endless", messages=messages()))
    await wait_until_async(lambda: bool(in_flight(stack)), "the request has arrived")
    waiting.cancel()
    await wait_until_async(lambda: not in_flight(stack), "the request is cancelled")


async def test_the_deadline_of_a_client(stack: Stack) -> None:
    body = {"model": "endless", "messages": messages()}
    answer = await stack.client.post("/v1/chat/completions", json=body, headers={"Request-Timeout": "0.3"})
    assert answer.status_code == 504
    assert answer.json()["error"]["type"] == "server_error"


def _ask(url: str) -> tuple[str | None, str]:
    with openai.OpenAI(base_url=url, api_key="any") as client:
        whole = client.chat.completions.create(model="talker", messages=messages()).choices[0].message.content
        stream = client.chat.completions.create(model="talker", messages=messages(), stream=True)
        return whole, "".join(chunk.choices[0].delta.content or "" for chunk in stream)


async def test_the_blocking_client_gets_the_same(stack: Stack) -> None:
    assert await asyncio.to_thread(_ask, f"{stack.client.base_url}/v1") == (expected(), expected())


async def test_each_answer_needs_a_place(leaves_nothing: None) -> None:
    gateway = GatewayConfig(port=0, drain_timeout_s=1, max_requests=4)
    async with running([openai_models.talker], gateway=gateway) as stack:
        body = {"model": "talker", "messages": messages()}
        assert (await stack.client.post("/v1/chat/completions", json=body | {"n": 4})).status_code == 200
        answer = await stack.client.post("/v1/chat/completions", json=body | {"n": 5})
        assert (answer.status_code, answer.json()["error"]["type"]) == (503, "server_error")
        assert stack.service.admission.num_requests == 0


async def test_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    key, record = new_key()
    write_tenants(file, [TenantRecord(name="all", keys=[record])])
    gateway = GatewayConfig(port=0, drain_timeout_s=1, keys_file=str(file))
    async with running([openai_models.talker], gateway=gateway) as stack:
        await stack.start_worker(openai_models.speak)
        url = f"{stack.client.base_url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as right:
            answer = await right.chat.completions.create(model="talker", messages=messages())
        assert answer.choices[0].message.content == expected()
        async with openai.AsyncOpenAI(base_url=url, api_key="wrong", max_retries=0) as wrong:
            with pytest.raises(openai.AuthenticationError):
                await wrong.chat.completions.create(model="talker", messages=messages())
        async with httpx.AsyncClient(base_url=url) as bare:
            assert (await bare.get("/v1/models")).status_code == 401
