"""`dyorc top` and `dyorc status` show what a server is doing: once, or as long as somebody looks."""

import asyncio
import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from dyorc.cli import top
from dyorc.cli.live_tables import tables
from dyorc.cli.main import _app as app  # pyright: ignore[reportPrivateUsage]
from dyorc.client import Client
from tests.deadlines import TIMEOUT_S
from tests.integration.test_live import Served, serving


@pytest.fixture
async def served(tmp_path: Path) -> AsyncGenerator[Served]:
    async with serving(tmp_path / "keys.json") as found:
        yield found


async def run(served: Served, *arguments: str) -> Result:
    """Runs the command line against the server."""
    runner = CliRunner(env={"DYORC_API_KEY": served.operator, "COLUMNS": "200", "NO_COLOR": "1"})
    return await asyncio.to_thread(runner.invoke, app, [*arguments, "--url", served.url], catch_exceptions=False)


def cells_of(text: str, name: str) -> list[str]:
    """Returns the columns of the line that begins with a name."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return [cell for cell in line.split("  ") if cell.strip()]


async def test_top_prints_once_where_nobody_can_watch(served: Served) -> None:
    served.backend.status.joined("double", "double-0", 1)
    found = await run(served, "top")
    assert found.exit_code == 0
    state, warm, parked, wanted, queued, running = [cell.strip() for cell in cells_of(found.stdout, "double")[1:7]]
    assert (state, warm, parked, wanted, queued, running) == ("ready", "1", "0", "1", "3", "2")
    assert "1 + 0.5 n" in found.stdout
    assert [cell.strip() for cell in cells_of(found.stdout, "quadruple")][-2:] == ["5", "7"]
    assert "6 in flight" in found.stdout


async def test_status_says_whether_the_server_is_ready(served: Served) -> None:
    status = await run(served, "status")
    assert status.exit_code == 1
    assert status.stdout.startswith("not ready: program 'double' is starting")
    served.backend.status.lose("group 'shop' has no leader")
    status = await run(served, "status")
    assert "cannot be reached: group 'shop' has no leader" in status.stdout.splitlines()[0]
    for status in served.backend.status.programs.values():
        status.unreachable = ""
    for program in served.backend.status.programs:
        served.backend.status.joined(program, f"{program}-0", 1)
    status = await run(served, "status", "--json")
    assert status.exit_code == 0
    shown = json.loads(status.stdout)
    assert (shown["is_ready"], shown["reason"]) == (True, "")
    assert shown["workflows"]["quadruple"]["in_flight"] == 5


async def test_a_server_that_is_not_there_is_named(served: Served) -> None:
    runner = CliRunner()
    found = await asyncio.to_thread(runner.invoke, app, ["top", "--url", "http://127.0.0.1:1"])
    assert "127.0.0.1:1" in str(found.exception)


async def test_on_a_terminal_top_follows_the_server_until_ctrl_c(served: Served) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "dyorc.cli.main", "top", "--url", served.url, "--interval", "0.1"]
    environment = os.environ | {"DYORC_API_KEY": served.operator, "TERM": "xterm", "COLUMNS": "150", "LINES": "50"}
    files = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = await asyncio.to_thread(subprocess.Popen, command, env=environment, **files)
    os.close(theirs)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            assert "quadruple" in await until(ours, "quadruple")
            assert "quadruple" in await until(ours, "quadruple")  # drawn again
            process.send_signal(signal.SIGINT)
            await until(ours, "\x1b[?1049l")  # the terminal is as it was
            assert await asyncio.to_thread(process.wait) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_the_same_moment_again_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server gives each of its moments for a second, so who asks more often must not see that no batch has run."""
    moments = iter([1.0, 2.0, 2.0, 2.0, 3.0])
    shown: list[tuple[float, float | None]] = []

    class MomentsClient:
        def live(self) -> dict[str, Any]:
            at_s = next(moments, None)
            if at_s is None:
                raise KeyboardInterrupt
            return {"at_s": at_s}

    def record(now: dict[str, Any], before: dict[str, Any] | None) -> str:
        shown.append((now["at_s"], None if before is None else before["at_s"]))
        return ""

    monkeypatch.setattr(top, "tables", record)
    with pytest.raises(KeyboardInterrupt):
        top._follow(cast("Client", MomentsClient()), Console(file=io.StringIO()), "", 0.0)
    assert shown == [(1.0, None), (2.0, 1.0), (2.0, 1.0), (2.0, 1.0), (3.0, 2.0)]


async def until(terminal: int, text: str) -> str:
    """Reads from a terminal until a text comes."""
    found = b""
    while text.encode() not in found:
        found += await asyncio.to_thread(os.read, terminal, 4096)
    return found.decode(errors="replace")


def test_batches_are_those_since_the_last_look() -> None:
    fit = {"base_ms": None, "per_call_ms": None, "points": []}
    program = {
        "state": "ready", "error": None, "replicas": [], "num_wanted": 1, "num_parked_wanted": 0, "num_queued": 0,
        "num_running": 0, "calls_per_s": 0.0, "latency_fit": fit, "num_guesses": 3, "num_committed": 2, "num_squashed": 1,
    }  # fmt: skip
    now = {"at_s": 1.0, "cells": [{"cell": 0, "pid": 1}], "workflows": {}, "programs": {"net": program}}
    before = now | {"programs": {"net": program | {"batch_sizes": {"1": 100, "4": 1}}}}
    now["programs"] = {"net": program | {"batch_sizes": {"1": 101, "4": 4}}}
    assert shown(now, None).count("1.1/4") == 1
    assert shown(now, before).count("3.2/4") == 1  # one of 1, three of 4
    assert "2/1/3" in shown(now, before)


def shown(now: dict[str, object], before: dict[str, object] | None) -> str:
    """Returns the tables as text."""
    output = io.StringIO()
    Console(file=output, width=200).print(tables(now, before))
    return output.getvalue()
