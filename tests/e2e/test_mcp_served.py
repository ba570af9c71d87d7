"""``/mcp`` of servers as users start them: several processes on one port, and one without the SDK."""

import asyncio
from typing import Any

import pytest

from tests.server_process import serving, target

pytestmark = pytest.mark.together
ARGUMENTS = [target("values", "judge"), target("values", "tell")]


def test_each_process_of_a_server_answers_each_message() -> None:
    mcp = pytest.importorskip("mcp")
    with serving([*ARGUMENTS, "--cells", "2"], in_process=True, DYORC_GATEWAY__MCP="true") as server:
        asyncio.run(_use(f"{server.url}/mcp", mcp.Client))


async def _use(url: str, kind: Any) -> None:
    for mode in ("auto", "legacy") * 4:
        async with kind(url, mode=mode) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == {"judge", "tell"}
            answer = await client.call_tool("judge", {"text": "a b"})
            assert answer.structured_content == {"label": "letter", "words": 2, "score": 0}
            answer = await client.call_tool("tell", {"text": "a b"})
            assert answer.structured_content == {"result": [{"word": "a"}, {"word": "b"}]}
