"""Every integration test runs on asyncio and is checked for what it leaves behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.leaks import no_leaks

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of this folder."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.anyio)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The only event loop that DyOrc knows."""
    return "asyncio"


@pytest.fixture(scope="session")
def zero_copy() -> None:
    """Starts the thread that pyzmq keeps for good once a message was sent without copying, so that it counts as no leak."""
    with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as other:
        one.bind("inproc://zero-copy")
        other.connect("inproc://zero-copy")
        one.send(bytes(1 << 17), copy=False)
        other.recv()


@pytest.fixture(scope="module", autouse=True)
def leaves_nothing(anyio_backend: str, zero_copy: None) -> Iterator[None]:
    """The module as a whole leaves nothing behind. Set up first, so that it looks after all else has been torn down."""
    with no_leaks():
        yield
