"""The client of the Model Context Protocol's official SDK for Python: workflows as tools, in both versions of its handshake."""

import asyncio
import base64
import importlib.util
import io
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import PIL.Image

from tests.conformance.doors.doors import Addresses, Door, run_checks
from tests.conformance.rows import Row, expect

_NAME = "mcp, the official SDK of Python"
_MODES = ("auto", "legacy")


async def _tools(client: Any) -> None:
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    expect(tools["words"].description, "Counts words.", "the description")
    expect(tools["words"].input_schema["required"], ["text"], "the required arguments")


async def _call(client: Any) -> None:
    answer = await client.call_tool("words", {"text": "To be", "options": {"most": 1}})
    expect(answer.structured_content, {"words": ["to"], "total": 2}, "the answer")


async def _picture(client: Any) -> None:
    buffer = io.BytesIO()
    PIL.Image.new("RGB", (64, 48), "red").save(buffer, "PNG")
    answer = await client.call_tool("thumbnail", {"image": base64.b64encode(buffer.getvalue()).decode(), "side": 8})
    with PIL.Image.open(io.BytesIO(base64.b64decode(answer.content[0].data))) as image:
        expect((answer.content[0].mime_type, image.size), ("image/png", (8, 8)), "the picture")


async def _parts(client: Any) -> None:
    seen: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    answer = await client.call_tool("spell", {"text": "to be"}, progress_callback=note)
    expect((seen, answer.structured_content), (['"to"', '"be"'], {"result": ["to", "be"]}), "the progress and the answer")


async def _errors(client: Any) -> None:
    from mcp.shared.exceptions import MCPError

    answer = await client.call_tool("words", {"text": 3})
    expect((answer.is_error, "'text'" in answer.content[0].text), (True, True), "the refusal, which names the argument")
    try:
        await client.call_tool("nothing", {})
    except MCPError as error:
        expect("unknown tool 'nothing'" in str(error), True, f"whether {error} names the tool")
    else:
        raise AssertionError("expected an error for a tool that does not exist")


async def _cancelled(client: Any) -> None:
    begun = asyncio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        begun.set()

    request = {"model": "endless", "messages": [{"role": "user", "content": "x"}]}
    call = asyncio.create_task(client.call_tool("endless", {"request": request}, progress_callback=note))
    await asyncio.wait_for(begun.wait(), 30)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await _call(client)


def _run(url: str, mode: str, check: Callable[[Any], Awaitable[None]]) -> None:
    from mcp import Client

    async def run() -> None:
        async with Client(f"{url}/mcp", mode=mode) as client:
            await client.list_tools()
            await check(client)

    asyncio.run(run())


def _find_missing() -> str:
    return "" if importlib.util.find_spec("mcp") else "mcp"


def _check(addresses: Addresses, folder: Path) -> Iterator[Row]:
    checks = {
        "tools: their descriptions and schemas": _tools,
        "a call with a structured answer": _call,
        "a picture": _picture,
        "parts as progress": _parts,
        "errors": _errors,
        "a cancelled call": _cancelled,
    }
    for mode in _MODES:
        runs = {f"{name} ({mode})": partial(_run, addresses.http, mode, check) for name, check in checks.items()}
        yield from run_checks(_NAME, runs)


DOOR = Door(_NAME, _find_missing, _check)
