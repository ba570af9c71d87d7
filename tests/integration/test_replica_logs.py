"""Replicas in processes of their own log as a client asks for while they run; so do replicas that start later."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import oip
from tests.integration.stack import Stack, running
from tests.server_process import target
from tests.workflows.talking import talk

X = np.array([1, 2, 3, 4], np.float32)
TARGET = target("talking", "talk")


@pytest.fixture
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    """Starts a server without replicas."""
    async with running([talk], num_replicas=0) as found:
        yield found


async def infer(stack: Stack) -> None:
    """Has the program run once."""
    content = oip.json_body({"x": X}).content
    (await stack.client.post("/v2/models/talk/infer", content=content)).raise_for_status()


def lines(log: Path) -> list[dict[str, Any]]:
    """Returns the lines of the program, as JSON."""
    found = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [line for line in found if line["logger"] == "users"]


async def test_replicas_log_as_asked_for(stack: Stack, tmp_path: Path) -> None:
    early, late = tmp_path / "early.log", tmp_path / "late.log"
    process = stack.spawn(TARGET, talk, "early", log=early)
    await stack.wait_for_replica(talk, "early")
    await infer(stack)
    assert "talked" not in early.read_text()

    asked = {"log_info": True, "log_format": "json"}
    (await stack.client.post("/v2/logging", json=asked)).raise_for_status()
    await infer(stack)  # the link keeps the order, so the replica knows by now
    assert [(line["event"], line["level"], line["replica"]) for line in lines(early)] == [("talked", "info", "early")]

    stack.spawn(TARGET, talk, "late", log=late)
    await stack.wait_for_replica(talk, "late")
    process.kill()
    await infer(stack)
    assert [(line["event"], line["replica"]) for line in lines(late)] == [("talked", "late")]

    (await stack.client.post("/v2/logging", json={"log_info": False})).raise_for_status()
    await infer(stack)
    assert len(lines(late)) == 1
