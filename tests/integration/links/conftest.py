"""Addresses for both links, the Unix socket and ZeroMQ, and the event loops that the orchestrator may run on."""

import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop


@pytest.fixture(scope="module", params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """The server runs on uvloop, tests and embedders may not."""
    uvloop.new_event_loop().close()  # what it makes once and keeps is no leak
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
def folder() -> Iterator[str]:
    """For sockets."""
    with tempfile.TemporaryDirectory(prefix="dyorc-test-") as found:
        yield found


@pytest.fixture(params=["unix", "ipc"])
def address(request: pytest.FixtureRequest, folder: str) -> str:
    """One of each link."""
    return f"{request.param}://{folder}/link"


@pytest.fixture
def unix_address(folder: str) -> str:
    """For what only the Unix socket does."""
    return f"unix://{folder}/link"
