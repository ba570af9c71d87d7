"""What the OpenAI door refuses in place of ignoring it, and what it takes that clients send without need."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from tests.integration.openai_stack import openai_client, openai_server
from tests.integration.stack import Stack
from tests.workflows import openai_models

CHAT = "/v1/chat/completions"
HELLO: Any = [{"role": "user", "content": "one two"}]


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    async with openai_server(max_choices=20) as started:
        yield started


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai_client(stack) as opened:
        yield opened


async def refusal(stack: Stack, path: str, body: dict[str, Any], status: int = 400) -> dict[str, Any]:
    """Returns the error of a request that must be refused, in OpenAI's form, before any part of an answer."""
    answer = await stack.client.post(path, json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json"), answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


async def test_the_setting_alone_limits_the_choices(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="talker", messages=HELLO, n=20)
    assert len(answer.choices) == 20
    with pytest.raises(openai.BadRequestError, match="21 answers, expected at most 20") as refused:
        await client.chat.completions.create(model="talker", messages=HELLO, n=21)
    assert refused.value.param == "n"


async def test_the_official_client_does_not_repeat_what_may_not_be_sent_again(stack: Stack) -> None:
    """By itself it repeats every answer from 500 on, and so an effect."""
    sent: list[httpx.Request] = []

    async def note(request: httpx.Request) -> None:
        sent.append(request)

    url = f"{stack.client.base_url}/v1"
    async with (
        httpx.AsyncClient(event_hooks={"request": [note]}) as http,
        openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=2, http_client=http) as client,
    ):
        with pytest.raises(openai.InternalServerError, match="it fails"):
            await client.chat.completions.create(model="talker", messages=[{"role": "user", "content": "fail"}])
    assert len(sent) == 1


async def test_nulls_count_as_absent(stack: Stack) -> None:
    names = (
        "n stream stream_options max_tokens max_completion_tokens temperature top_p stop seed tools tool_choice response_format"
    )
    nulls: dict[str, Any] = dict.fromkeys([*names.split(), "service_tier", "priority", "user", "logprobs"])
    answer = await stack.client.post(CHAT, json={"model": "talker", "messages": HELLO} | nulls)
    assert answer.json()["choices"][0]["message"]["content"] == "two one "
    more = dict.fromkeys(("echo", "suffix", "best_of"))
    answer = await stack.client.post("/v1/completions", json={"model": "talker", "prompt": "one two"} | nulls | more)
    assert answer.json()["choices"][0]["text"] == "two one "
    answer = await stack.client.post("/v1/responses", json={"model": "talker", "input": "one two", "background": None} | nulls)
    assert answer.json()["status"] == "completed"
    vectors = {"model": "embedder", "input": "a", "encoding_format": None, "dimensions": None, "user": None}
    assert (await stack.client.post("/v1/embeddings", json=vectors)).json()["data"][0]["embedding"] == [0.125, 0.25, 0.5]
    assert (await refusal(stack, CHAT, {"model": "talker", "messages": None}))["param"] == "messages"


@pytest.mark.parametrize("tokens", [[1, 2], [[1], [2, 3]], [[]]])
async def test_tokens_go_to_workflows_that_take_them(stack: Stack, tokens: Any) -> None:
    error = await refusal(stack, "/v1/embeddings", {"model": "embedder", "input": tokens})
    assert (error["param"], error["message"]) == ("input", "'input' has tokens, and model 'embedder' takes texts")
    rows = tokens if isinstance(tokens[0], list) else [tokens]
    answer = await stack.client.post("/v1/embeddings", json={"model": "token_embedder", "input": tokens})
    assert [each["embedding"] for each in answer.json()["data"]] == [openai_models.vector_of("a" * len(row)) for row in rows]


async def test_such_workflows_take_texts_too(client: openai.AsyncOpenAI) -> None:
    answer = await client.embeddings.create(model="token_embedder", input=["banana", "b"], encoding_format="float")
    assert [each.embedding for each in answer.data] == [openai_models.vector_of("banana"), openai_models.vector_of("b")]


@pytest.mark.parametrize("model", ["embedder", "token_embedder"])
async def test_many_vectors(client: openai.AsyncOpenAI, model: str) -> None:
    texts = ["a" * (number % 7) for number in range(20_000)]  # so many that they are written on a thread
    answer = await client.embeddings.create(model=model, input=texts, encoding_format="float")
    assert [each.embedding for each in answer.data] == [openai_models.vector_of(text) for text in texts]
    assert [each.index for each in answer.data] == list(range(20_000))


async def test_dimensions_that_the_answer_does_not_have(stack: Stack) -> None:
    body = {"model": "embedder", "input": "a", "dimensions": 99}
    assert (await refusal(stack, "/v1/embeddings", body))["message"].startswith(
        "'dimensions' is 99, and model 'embedder' answers"
    )
    assert (await stack.client.post("/v1/embeddings", json=body | {"dimensions": 3})).status_code == 200


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("message", "param", "text"),
    [
        ({"role": "king", "content": "a"}, "messages.0.role", "'developer', 'system', 'user', 'assistant', 'tool' or 'function'"),
        ({"role": "user"}, "messages.0", "a message of the role user needs a 'content'"),
        ({"role": "tool", "content": None}, "messages.0", "a message of the role tool needs a 'content'"),
    ],
)
async def test_messages_that_are_none(stack: Stack, message: dict[str, Any], param: str, text: str, streams: bool) -> None:
    error = await refusal(stack, CHAT, {"model": "talker", "messages": [message], "stream": streams})
    assert error["param"] == param
    assert text in error["message"]


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "zz"}, "input.0.type"),
        ({"type": 3}, "input.0.type"),
        ({"role": "zz", "content": "a"}, "input.0.role"),
        ({"role": ["user"], "content": "a"}, "input.0.role"),
        ({"role": "user"}, "input.0.content"),
        ({}, "input.0.content"),
    ],
)
async def test_items_that_are_none(stack: Stack, item: dict[str, Any], param: str) -> None:
    assert (await refusal(stack, "/v1/responses", {"model": "talker", "input": [item]}))["param"] == param


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/completions", {"echo": True}, "echo"),
        ("/v1/completions", {"suffix": "x"}, "suffix"),
        ("/v1/completions", {"best_of": 3}, "best_of"),
        ("/v1/responses", {"background": True}, "background"),
    ],
)
async def test_what_nobody_does_is_refused(stack: Stack, path: str, fields: dict[str, Any], param: str) -> None:
    body = {"model": "talker", "input": "a", "prompt": None} if path == "/v1/responses" else {"model": "writer", "prompt": "a"}
    assert (await refusal(stack, path, body | fields))["param"] == param


async def test_a_workflow_does_what_its_type_declares(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model="infiller", prompt="a", suffix="b", best_of=1, echo=False)
    assert answer.choices[0].text == "between a and b"


async def test_an_unknown_model_names_the_others(stack: Stack) -> None:
    error = await refusal(stack, CHAT, {"model": "nobody", "messages": HELLO}, 404)
    chats = ["endless", "limited", "loose", "refuser", "silent", "talker", "tooled"]
    assert (error["code"], error["message"]) == ("model_not_found", f"unknown model 'nobody'; served are {chats}")
    error = await refusal(stack, CHAT, {"model": "sums", "messages": HELLO}, 404)
    assert error["message"] == f"model 'sums' takes no ChatRequest; these do: {chats}"


@pytest.mark.parametrize("path", ["/v1/moderations", "/v1/chat/none", "/v1/audio/speech"])
async def test_unknown_routes(stack: Stack, path: str) -> None:
    error = await refusal(stack, path, {}, 404)
    assert (error["code"], error["message"]) == (None, f"unknown URL '{path}'")


async def test_an_answer_ends_by_itself_unless_the_workflow_says_otherwise(client: openai.AsyncOpenAI) -> None:
    reasons = {
        (model, limit): (
            await client.chat.completions.create(model=model, messages=HELLO, max_tokens=limit)
        ).choices[0].finish_reason
        for model, limit in (("talker", 2), ("silent", 1), ("limited", 2), ("limited", 1))
    }  # fmt: skip
    assert reasons == {("talker", 2): "stop", ("silent", 1): "stop", ("limited", 2): "stop", ("limited", 1): "length"}
    answer = await client.chat.completions.create(model="limited", messages=HELLO, max_tokens=1)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 1, "the delta that only says why it ends is no token"


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/responses"])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_client_error_before_the_first_part_is_a_plain_answer(stack: Stack, path: str, streams: bool) -> None:
    given = {CHAT: {"messages": HELLO}, "/v1/completions": {"prompt": "a"}, "/v1/responses": {"input": "a"}}[path]
    error = await refusal(stack, path, {"model": "refuser", "stream": streams} | given)
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_input")
    assert "it is refused" in error["message"]


@pytest.mark.parametrize("more", [{"tools": [{}] * 250_000}, {"x": {str(number): number for number in range(130_000)}}])
async def test_more_values_than_are_read_at_once(stack: Stack, more: dict[str, Any]) -> None:
    error = await refusal(stack, CHAT, {"model": "talker", "messages": HELLO} | more)
    assert "more than 250000 fields, texts, lists and objects" in error["message"]


async def test_large_texts_and_many_tokens_are_read(stack: Stack) -> None:
    text = ' {"[:' * 300_000
    answer = await stack.client.post(
        CHAT, json={"model": "silent", "messages": [{"role": "user", "content": text}], "max_tokens": 2}
    )
    assert answer.json()["choices"][0]["message"]["content"] == '{"[: {"[: '
    answer = await stack.client.post("/v1/embeddings", json={"model": "token_embedder", "input": [1] * 300_000})
    assert answer.json()["data"][0]["embedding"] == openai_models.vector_of("a" * 300_000)


async def test_more_messages_than_the_api_takes(stack: Stack) -> None:
    error = await refusal(stack, CHAT, {"model": "talker", "messages": HELLO * 2049})
    assert error["param"] == "messages"
    assert "at most 2048" in error["message"]


@pytest.mark.parametrize("limits", [{"max_requests": 3}, {"max_requests_per_s": 3.5}])
async def test_more_answers_than_a_key_can_ever_have_at_once(tmp_path: Path, limits: dict[str, Any]) -> None:
    """Clients try again after 429, and this would never end."""
    key, record = new_key()
    write_tenants(tmp_path / "keys.json", [TenantRecord(name="team", keys=[record], **limits)])
    async with openai_server(keys_file=str(tmp_path / "keys.json")) as stack:
        stack.client.headers["authorization"] = f"Bearer {key}"
        error = await refusal(stack, CHAT, {"model": "talker", "messages": HELLO, "n": 4})
        assert (error["param"], "at most 3 (a limit of this key" in error["message"]) == ("n", True)
        fitting = {"max_requests": {"n": 3}, "max_requests_per_s": {"n": 2}}[next(iter(limits))]  # one token is spent
        answer = await stack.client.post(CHAT, json={"model": "talker", "messages": HELLO} | fitting)
        assert answer.status_code == 200, answer.text
