"""What a client is to the table, and the server that all of them are tried on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.conformance.rows import Row, expect
from tests.server_process import serving, target
from tests.threaded_server import answering

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
NODE_MODULES = ROOT / ".venv-doors" / "node_modules"
"""Where `make conformance-doors` puts the packages of npm."""
TIMEOUT_S = 120.0
"""For one command of a client, on a machine under load."""


@dataclass(frozen=True)
class Addresses:
    """Of the server, and of two pages of other origins.

    Attributes:
        http: With the scheme.
        grpc: Host and port.
        allowed_page: The server answers its requests.
        refused_page: Its origin is not among `gateway.cors_origins`.
    """

    http: str
    grpc: str
    allowed_page: str
    refused_page: str


@dataclass(frozen=True)
class Door:
    """A client.

    Attributes:
        find_missing: Returns what the machine lacks for it; empty if nothing.
        check: Yields a row for each check. The folder is empty and for whatever the client needs.
    """

    name: str
    find_missing: Callable[[], str]
    check: Callable[[Addresses, Path], Iterator[Row]]


class _Page(BaseHTTPRequestHandler):
    """An empty page."""

    def do_GET(self) -> None:
        text = b"<!doctype html><title>A page of another origin</title>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@contextmanager
def served() -> Generator[Addresses]:
    """Runs the server and the two pages."""
    tensors, parts, structured = HERE.parent / "models.py", HERE.parent / "streaming_models.py", HERE / "run_models.py"
    chats = ("talker", "limited", "tooled", "writer", "embedder", "ranker", "endless")
    targets = [
        *(f"{tensors}:{name}" for name in ("mirror", "behave")), f"{parts}:count",
        *(f"{structured}:{name}" for name in ("words", "spell", "thumbnail")), *(target("openai_models", name) for name in chats),
    ]  # fmt: skip
    with (
        answering(_Page) as allowed,
        answering(_Page) as refused,
        serving(targets, in_process=True, DYORC_GATEWAY__CORS_ORIGINS=json.dumps([allowed]), DYORC_GATEWAY__MCP="true") as server,
    ):
        yield Addresses(server.url, server.grpc_address, allowed, refused)


def commands_missing(*commands: str) -> str:
    """Returns which of these commands the machine lacks, for people."""
    return ", ".join(command for command in commands if shutil.which(command) is None)


def run_checks(door: str, checks: Mapping[str, Callable[[], object]]) -> Iterator[Row]:
    """Runs checks one by one: each returns if its promise holds, and raises if not."""
    for name, check in checks.items():
        try:
            check()
        except Exception as error:
            yield Row("doors", door, name, False, " ".join(f"{type(error).__name__}: {error}".split())[:400])
        else:
            yield Row("doors", door, name, True)


def rows_of(door: str, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator[Row]:
    """Runs a client that prints a line of JSON for each check: `name`, and `detail`, which is empty if it passed."""
    names: list[str] = []
    output = output_of(command, environment, folder, checked=False)
    for line in output.stdout.splitlines():
        row = json.loads(line)
        names.append(row["name"])
        yield Row("doors", door, row["name"], not row["detail"], row["detail"][:400])
    if output.returncode != 0 or not names:
        yield Row("doors", door, "ends well", False, f"status {output.returncode}: {' '.join(output.stderr.split())[-380:]}")


def output_of(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, *, checked: bool = True
) -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder.

    Raises:
        AssertionError: If it fails and is `checked`.
    """
    output = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if checked:
        expect(output.returncode, 0, f"the status of {command[0]}, which says {output.stderr[-300:]!r},")
    return output
