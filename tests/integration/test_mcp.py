"""``/mcp`` by the official SDK's own client, on real servers; `dyorc.run` is the reference."""

import asyncio
import base64
import io
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import PIL.Image
import pytest

import dyorc
from dyorc.config import GatewayConfig
from dyorc.errors import MissingLibraryError
from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from dyorc.server.request_pipeline import mcp_door
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.integration.stack import Stack, running
from tests.workflows import arithmetic, tensors, values

pytest.importorskip("mcp")

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

MODES = ("auto", "legacy")
"""The protocol of July 2026, and the handshake of the versions before."""


@dyorc.workflow
async def endless(text: str) -> AsyncIterator[str]:
    """Never ends."""
    while True:
        yield (await values.read(text, values.Options())).kind


@dyorc.workflow
async def shout(text: str) -> str:
    """Says it louder.

    Meant for texts.
    """
    if text == "silence":
        raise ValueError("nothing to shout")
    return text.upper() + (await values.read(text, values.Options())).kind


TARGETS = [values.judge, values.thumbnail, values.describe, values.tell, values.parcel, tensors.affine, endless, shout]


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    async with running(TARGETS, gateway=GatewayConfig(port=0, drain_timeout_s=1, mcp=True)) as started:
        yield started


def url_of(stack: Stack) -> str:
    return f"{str(stack.client.base_url).rstrip('/')}/mcp"


def text_of(answer: Any) -> str:
    """Returns the text of an answer with nothing else."""
    (content,) = answer.content
    return content.text


def picture() -> bytes:
    buffer = io.BytesIO()
    PIL.Image.fromarray(np.arange(72, dtype=np.uint8).reshape(4, 6, 3)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("mode", MODES)
async def test_workflows_are_tools(stack: Stack, mode: str) -> None:
    async with Client(url_of(stack), mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools.keys() == {target.name for target in TARGETS}
    assert tools["shout"].description == "Says it louder.\n\nMeant for texts."
    assert tools["judge"].description is None
    assert tools["judge"].input_schema["required"] == ["text"]
    assert tools["judge"].output_schema is not None
    assert tools["thumbnail"].output_schema is None


@pytest.mark.parametrize("mode", MODES)
async def test_calls(stack: Stack, mode: str) -> None:
    async with Client(url_of(stack), mode=mode) as client:
        await client.list_tools()  # from then on the client checks answers against the schemas
        judged = await client.call_tool("judge", {"text": "An invoice", "options": {"lower": False}})
        expected = dyorc.run(values.judge, "An invoice", values.Options(lower=False)).model_dump()
        assert (judged.is_error, judged.structured_content) == (False, expected)
        assert msgspec.json.decode(text_of(judged)) == expected
        assert (await client.call_tool("shout", {"text": "a"})).structured_content == {"result": "Aletter"}
        numbers = await client.call_tool("affine", {"x": [1, 2, 3, 4], "index": [3, 0], "factor": 2})
        assert isinstance(numbers.structured_content["result"], list)
        image = base64.b64encode(picture()).decode()
        described = await client.call_tool("describe", {"image": image, "note": "ä"})
        assert described.structured_content["result"][0] == "6 x 4 ä"


@pytest.mark.parametrize("mode", MODES)
async def test_a_picture_is_image_content(stack: Stack, mode: str) -> None:
    async with Client(url_of(stack), mode=mode) as client:
        answer = await client.call_tool("thumbnail", {"image": base64.b64encode(picture()).decode(), "side": 2})
    content: Any = answer.content[0]
    assert (content.type, content.mime_type) == ("image", "image/png")
    image = PIL.Image.open(io.BytesIO(base64.b64decode(content.data)))
    assert (np.asarray(image) == np.asarray(dyorc.run(values.thumbnail, picture(), 2))).all()


@pytest.mark.parametrize("mode", MODES)
async def test_parts_are_progress(stack: Stack, mode: str) -> None:
    seen: list[tuple[float, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, message))

    async with Client(url_of(stack), mode=mode) as client:
        answer = await client.call_tool("tell", {"text": "a b"}, progress_callback=note)
    assert answer.structured_content == {"result": [{"word": "a"}, {"word": "b"}]}
    assert seen == [(1, '{"word":"a"}'), (2, '{"word":"b"}')]


async def test_a_cancelled_call_cancels_its_request(stack: Stack) -> None:
    first_part = asyncio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        first_part.set()

    async with Client(url_of(stack)) as client:
        call = asyncio.create_task(client.call_tool("endless", {"text": "x"}, progress_callback=note))
        await asyncio.wait_for(first_part.wait(), TIMEOUT_S)
        assert stack.service.admission.num_requests == 1
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await wait_until_async(lambda: stack.service.admission.num_requests == 0, "the request ends")
        assert (await client.call_tool("shout", {"text": "b"})).structured_content == {"result": "Bletter"}


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_that_goes_away_cancels_its_request(stack: Stack, mode: str) -> None:
    first_part = asyncio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        first_part.set()

    async def call() -> None:
        async with Client(url_of(stack), mode=mode) as client:
            await client.call_tool("endless", {"text": "x"}, progress_callback=note)

    task = asyncio.create_task(call())
    await asyncio.wait_for(first_part.wait(), TIMEOUT_S)
    task.cancel()
    await asyncio.wait([task])
    await wait_until_async(lambda: stack.service.admission.num_requests == 0, "the request ends")


@pytest.mark.parametrize("mode", MODES)
async def test_errors_are_results_that_say_what_is_wrong(stack: Stack, mode: str) -> None:
    async with Client(url_of(stack), mode=mode) as client:
        for arguments, text in (
            ({}, "'text' is missing"),
            ({"text": 3}, "'text' is int 3, expected str"),
            ({"text": "x", "options": {"most": 0}}, "most: Input should be greater than or equal to 1, got 0"),
            ({"text": "x", "other": 1}, "has no parameter 'other'"),
        ):
            answer = await client.call_tool("judge", arguments)
            assert answer.is_error
            assert text in text_of(answer)
        assert "nothing to shout" in text_of(await client.call_tool("shout", {"text": "silence"}))
        for unknown in ("nobody", "read"):
            with pytest.raises(MCPError, match=f"unknown tool '{unknown}'"):
                await client.call_tool(unknown, {})


@pytest.mark.parametrize("number", ["1e400", "NaN", "-Infinity"])
async def test_numbers_that_json_lacks_are_refused(stack: Stack, number: str) -> None:
    body = (
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"judge","arguments":{"text":"a","options":{"most":%s}}}}'
    )
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    answer = await stack.client.post("/mcp", content=body, headers=headers)
    assert answer.status_code == 400 or ("isError" in answer.text and "argument 'options' holds" in answer.text), answer.text


async def test_pages_of_the_web_may_not_call_tools_unless_they_are_named(tmp_path: Path) -> None:
    body = '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}'
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    gateway = GatewayConfig(port=0, drain_timeout_s=1, mcp=True, cors_origins=("https://mine.example",))
    async with running([shout], gateway=gateway) as stack:
        for origin, status in (("https://mine.example", 200), ("http://evil.example", 403), (None, 200)):
            sent = headers | ({} if origin is None else {"origin": origin})
            answer = await stack.client.post("/mcp", content=body, headers=sent)
            assert answer.status_code == status, answer.text


async def test_only_post_is_answered(stack: Stack) -> None:
    for method in ("GET", "DELETE"):
        answer = await stack.client.request(method, "/mcp", headers={"accept": "text/event-stream"})
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_there_are_no_sessions(stack: Stack) -> None:
    """So each process of a server can answer each message."""
    async with Client(url_of(stack), mode="legacy") as client:
        assert (await client.call_tool("shout", {"text": "a"})).structured_content == {"result": "Aletter"}
    headers = {"accept": "application/json, text/event-stream", "mcp-session-id": "gone"}
    assert (await stack.client.delete("/mcp", headers=headers)).status_code == 405


async def test_keys(tmp_path: Path) -> None:
    keys: dict[str, str] = {}
    records = []
    limits: dict[str, Any] = {"all": {}, "one": {"models": ["quadruple"]}}
    for name, given in limits.items():
        keys[name], record = new_key()
        records.append(TenantRecord(name=name, keys=[record], **given))
    write_tenants(tmp_path / "keys.toml", records)
    gateway = GatewayConfig(port=0, drain_timeout_s=1, mcp=True, keys_file=str(tmp_path / "keys.toml"))
    async with running([arithmetic.quadruple, arithmetic.sums], gateway=gateway) as stack:
        names = {}
        for name, key in keys.items():
            http: Any = httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, trust_env=False)
            async with http, Client(streamable_http_client(url_of(stack), http_client=http)) as client:
                names[name] = [tool.name for tool in (await client.list_tools()).tools]
                if name == "one":
                    answer = await client.call_tool("quadruple", {"x": [1, 2, 3, 4]})
                    assert answer.structured_content == {"result": [4, 8, 12, 16]}
                    with pytest.raises(MCPError, match="unknown tool 'sums'"):
                        await client.call_tool("sums", {})
        assert names == {"all": ["quadruple", "sums"], "one": ["quadruple"]}
        assert (await stack.client.post("/mcp", json={})).status_code == 401


async def test_it_is_off_unless_asked_for() -> None:
    async with running([arithmetic.quadruple]) as stack:
        assert (await stack.client.post("/mcp", json={})).status_code == 404


def test_without_the_sdk_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    service: Any = None  # it is not looked at
    with pytest.raises(MissingLibraryError, match=r"setting gateway.mcp needs mcp.*pip install 'dyorc-core\[mcp\]'"):
        mcp_door(service)
