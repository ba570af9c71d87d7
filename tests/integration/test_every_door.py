"""One workflow through every door gives the same answer, and the same parts: tensors over HTTP and gRPC, plain values, forms,
OpenAI's API, the Model Context Protocol, jobs, our client, `dyorc.run`. What it is, plain Python says (`reply_to`)."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
import numpy as np
import openai
import pytest

import dyorc
from dyorc.client import AsyncClient
from dyorc.config import GatewayConfig, JobsConfig
from dyorc.openai import ChatRequest
from dyorc.store.sqlite import SqliteStore
from tests import oip, oip_grpc
from tests.integration.stack import Stack, running
from tests.workflows import openai_models

pytest.importorskip("mcp")

from mcp import Client as McpClient

TEXT = "one \u00e4\u4e2d\U0001f600 three four"
FIELDS: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": TEXT},
    ],
    "max_tokens": 3,
}
REQUEST = ChatRequest.model_validate(FIELDS)
PARTS = openai_models.reply_to(REQUEST)
WHOLE, STREAMING = "silent", "talker"
"""Two workflows that answer the same, the one at once and the other in parts."""
Door: TypeAlias = Callable[[Stack], Awaitable[Any]]


def tensor() -> dict[str, oip.Array]:
    """Returns the request as the protocol for tensors carries a structured value."""
    array = np.empty((), object)
    array[()] = json.dumps(FIELDS).encode()
    return {"request": array}


@pytest.fixture(scope="session", autouse=True)
def local_loop() -> None:
    """Runs the workflow here once, before leaks are looked for: `dyorc.run` keeps the loop of programs that wait."""
    list(dyorc.run(openai_models.talker, REQUEST))


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    store = SqliteStore(tmp_path_factory.mktemp("jobs") / "jobs.sqlite")
    gateway = GatewayConfig(port=0, drain_timeout_s=1, mcp=True)
    targets = [openai_models.silent, openai_models.talker]
    async with running(targets, gateway=gateway, store=store, jobs=JobsConfig(), grpc=True) as started:
        yield started


def url_of(stack: Stack) -> str:
    return str(stack.client.base_url).rstrip("/")


async def infer_json(stack: Stack) -> Any:
    inputs = [{"name": "request", "datatype": "BYTES", "shape": [], "data": [json.dumps(FIELDS)]}]
    answer = await stack.client.post(f"/v2/models/{WHOLE}/infer", json={"inputs": inputs})
    return answer.json()["outputs"][0]["data"][0]


async def infer_binary(stack: Stack) -> Any:
    body = oip.binary_body(tensor(), outputs=[{"name": "output", "parameters": {"binary_data": True}}])
    answer = await stack.client.post(f"/v2/models/{WHOLE}/infer", content=body.content, headers=body.headers)
    return answer.content[int(answer.headers[oip.LENGTH_HEADER]) + 4 :].decode()


async def generate(stack: Stack) -> Any:
    return (await stack.client.post(f"/v2/models/{WHOLE}/generate", json={"request": json.dumps(FIELDS)})).json()["output"]


async def infer_grpc(stack: Stack) -> Any:
    async with oip_grpc.connected(stack.grpc_address) as stub:
        answer = await stub.ModelInfer(oip_grpc.request(WHOLE, tensor()))
    return bytes(oip_grpc.outputs_of(answer)["output"][()]).decode()


async def run_json(stack: Stack) -> Any:
    return (await stack.client.post(f"/run/{WHOLE}", json={"request": FIELDS})).json()


async def run_form(stack: Stack) -> Any:
    return (await stack.client.post(f"/run/{WHOLE}", files={"request": json.dumps(FIELDS).encode()})).json()


async def run_coded_form(stack: Stack) -> Any:
    return (await stack.client.post(f"/run/{WHOLE}", data={"request": json.dumps(FIELDS)})).json()


async def chat(stack: Stack) -> Any:
    async with openai.AsyncOpenAI(base_url=f"{url_of(stack)}/v1", api_key="any", max_retries=0) as client:
        fields: dict[str, Any] = FIELDS | {"model": WHOLE}
        answer = await client.chat.completions.create(**fields)
    return answer.choices[0].message.content


async def response(stack: Stack) -> Any:
    async with openai.AsyncOpenAI(base_url=f"{url_of(stack)}/v1", api_key="any", max_retries=0) as client:
        answer = await client.responses.create(model=WHOLE, input=FIELDS["messages"], max_output_tokens=3)
    return answer.output_text


async def tool(stack: Stack) -> Any:
    async with McpClient(f"{url_of(stack)}/mcp") as client:
        return (await client.call_tool(WHOLE, {"request": FIELDS})).structured_content["result"]


async def client_run(stack: Stack) -> Any:
    async with AsyncClient(url_of(stack)) as client:
        return await client.run(WHOLE, request=REQUEST)


async def client_infer(stack: Stack) -> Any:
    async with AsyncClient(url_of(stack)) as client:
        return (await client.infer(WHOLE, request=json.dumps(FIELDS))).item().decode()


async def job(stack: Stack) -> Any:
    async with AsyncClient(url_of(stack)) as client:
        submitted = await client.submit(WHOLE, request=json.dumps(FIELDS))
        return (await submitted.result(60)).item().decode()


WHOLES: list[Door] = [
    infer_json, infer_binary, generate, infer_grpc, run_json, run_form, run_coded_form, chat, response, tool, client_run,
    client_infer,  job,
]  # fmt: skip


@pytest.mark.parametrize("door", WHOLES, ids=lambda door: door.__name__)
async def test_the_answer(stack: Stack, door: Door) -> None:
    assert await door(stack) == "".join(PARTS)


def events_in(text: str) -> list[Any]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: {") or '"' in line]


async def infer_stream(stack: Stack) -> Any:
    inputs = [{"name": "request", "datatype": "BYTES", "shape": [], "data": [json.dumps(FIELDS)]}]
    answer = await stack.client.post(f"/v2/models/{STREAMING}/infer_stream", json={"inputs": inputs})
    return [event["outputs"][0]["data"][0] for event in events_in(answer.text)]


async def generate_stream(stack: Stack) -> Any:
    answer = await stack.client.post(f"/v2/models/{STREAMING}/generate_stream", json={"request": json.dumps(FIELDS)})
    return [event["output"] for event in events_in(answer.text)]


async def stream_grpc(stack: Stack) -> Any:
    async with oip_grpc.connected(stack.grpc_address) as stub:
        call = stub.ModelStreamInfer()
        await call.write(oip_grpc.request(STREAMING, tensor()))
        await call.done_writing()
        answers = [answer async for answer in call]
        assert await call.code() is grpc.StatusCode.OK
    assert not any(answer.error_message for answer in answers)
    outputs = [oip_grpc.outputs_of(answer.infer_response) for answer in answers if answer.infer_response.outputs]
    return [bytes(output["output"][()]).decode() for output in outputs]


async def run_events(stack: Stack) -> Any:
    headers = {"accept": "text/event-stream"}
    return events_in((await stack.client.post(f"/run/{STREAMING}", json={"request": FIELDS}, headers=headers)).text)


async def run_list(stack: Stack) -> Any:
    return (await stack.client.post(f"/run/{STREAMING}", json={"request": FIELDS})).json()


async def chat_stream(stack: Stack) -> Any:
    async with openai.AsyncOpenAI(base_url=f"{url_of(stack)}/v1", api_key="any", max_retries=0) as client:
        fields: dict[str, Any] = FIELDS | {"model": STREAMING, "stream": True}
        chunks: Any = await client.chat.completions.create(**fields)
        return [chunk.choices[0].delta.content async for chunk in chunks if chunk.choices[0].delta.content]


async def response_stream(stack: Stack) -> Any:
    async with openai.AsyncOpenAI(base_url=f"{url_of(stack)}/v1", api_key="any", max_retries=0) as client:
        events = await client.responses.create(model=STREAMING, input=FIELDS["messages"], max_output_tokens=3, stream=True)
        return [event.delta async for event in events if event.type == "response.output_text.delta"]


async def tool_progress(stack: Stack) -> Any:
    seen: list[Any] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(json.loads(message or "null"))

    async with McpClient(f"{url_of(stack)}/mcp") as client:
        answer = await client.call_tool(STREAMING, {"request": FIELDS}, progress_callback=note)
    assert answer.structured_content == {"result": seen}
    return seen


async def client_stream(stack: Stack) -> Any:
    async with AsyncClient(url_of(stack)) as client:
        return [part.item().decode() async for part in client.stream(STREAMING, request=json.dumps(FIELDS))]


async def client_run_stream(stack: Stack) -> Any:
    async with AsyncClient(url_of(stack)) as client:
        return [part async for part in client.run_stream(STREAMING, request=REQUEST)]


STREAMS: list[Door] = [
    infer_stream, generate_stream, stream_grpc, run_events, run_list, chat_stream, response_stream, tool_progress, client_stream,
    client_run_stream,
]  # fmt: skip


@pytest.mark.parametrize("door", STREAMS, ids=lambda door: door.__name__)
async def test_the_parts(stack: Stack, door: Door) -> None:
    assert await door(stack) == PARTS


def test_in_this_process() -> None:
    assert dyorc.run(openai_models.silent, REQUEST) == "".join(PARTS)
    assert list(dyorc.run(openai_models.talker, REQUEST)) == PARTS
