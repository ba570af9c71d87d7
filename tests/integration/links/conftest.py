"""Addresses of both links, the Unix socket and ZeroMQ, and the event loops that an orchestrator may run on."""

import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """The server runs on uvloop; tests and embedders may run on asyncio's own loop."""
    uvloop.new_event_loop().close()  # what uvloop creates once and keeps is not a leak
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture
def folder() -> Iterator[str]:
    """Makes a folder for sockets."""
    with tempfile.TemporaryDirectory(prefix="dyorc-test-") as found:
        yield found


@pytest.fixture(params=["unix", "ipc"])
def address(request: pytest.FixtureRequest, folder: str) -> str:
    """Returns an address of each kind of link."""
    return f"{request.param}://{folder}/link"


@pytest.fixture
def unix_address(folder: str) -> str:
    """Returns an address for tests of what only the Unix socket does."""
    return f"unix://{folder}/link"
