"""The Model Context Protocol's Inspector, without its page: `mcp-inspector --cli`, by its SDK for TypeScript."""

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import PIL.Image

from tests.conformance.doors.doors import NODE_MODULES, Addresses, Door, commands_missing, output_of, run_checks
from tests.conformance.rows import Row, expect

_NAME = "MCP Inspector"
_COMMAND = NODE_MODULES / ".bin" / "mcp-inspector"


class _Inspector:
    """Runs the Inspector in an empty folder."""

    def __init__(self, url: str, folder: Path) -> None:
        self._start = (str(_COMMAND), "--cli", f"{url}/mcp", "--transport", "http", "--method")
        self._folder = folder

    def _ask(self, *arguments: str) -> Any:
        return json.loads(output_of((*self._start, *arguments), {}, self._folder).stdout)

    def tools(self) -> None:
        tools = {tool["name"]: tool for tool in self._ask("tools/list")["tools"]}
        expect(tools["words"]["description"], "Counts words.", "the description")

    def call(self) -> None:
        answer = self._ask("tools/call", "--tool-name", "words", "--tool-arg", "text=To be", "options={}")
        expect(answer["structuredContent"], {"words": ["to", "be"], "total": 2}, "the answer")

    def picture(self) -> None:
        buffer = io.BytesIO()
        PIL.Image.new("RGB", (16, 16), "red").save(buffer, "PNG")
        image = base64.b64encode(buffer.getvalue()).decode()
        answer = self._ask("tools/call", "--tool-name", "thumbnail", "--tool-arg", f"image={image}", "side=4")
        expect((answer["content"][0]["type"], answer["content"][0]["mimeType"]), ("image", "image/png"), "the content")

    def parts(self) -> None:
        answer = self._ask("tools/call", "--tool-name", "spell", "--tool-arg", "text=to be")
        expect(answer["structuredContent"], {"result": ["to", "be"]}, "the parts")

    def errors(self) -> None:
        answer = self._ask("tools/call", "--tool-name", "words", "--tool-arg", "wrong=x")
        expect((answer["isError"], "'wrong'" in answer["content"][0]["text"]), (True, True), "the refusal")


def _find_missing() -> str:
    return ", ".join(
        filter(None, (commands_missing("node"), "" if _COMMAND.exists() else "npm's @modelcontextprotocol/inspector"))
    )


def _check(addresses: Addresses, folder: Path) -> Iterator[Row]:
    inspector = _Inspector(addresses.http, folder)
    checks = {
        "tools/list": inspector.tools,
        "tools/call with a structured answer": inspector.call,
        "tools/call with a picture": inspector.picture,
        "tools/call with parts": inspector.parts,
        "tools/call with an unknown argument": inspector.errors,
    }
    yield from run_checks(_NAME, checks)


DOOR = Door(_NAME, _find_missing, _check)
