"""One server for all tests of this folder: a start takes seconds. It is stopped as a user stops it, and must leave nothing."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.leaks import no_leaks
from tests.server_process import ServerProcess, serving, target

_HERE = Path(__file__).parent

TARGETS = [
    target("arithmetic", "quadruple"),
    target("arithmetic", "double_until_large"),
    target("arithmetic", "sums"),
    target("tensors", "echo"),
    target("tensors", "affine"),
    target("faulty", "pick"),
    target("slow", "hanging"),
    target("replicas", "who"),
    target("replicas", "who_alone"),
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the tests of the shared server last, so that it does not run beside servers of other tests."""
    items.sort(key=lambda item: _HERE in item.path.parents and "server" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    """Serves `TARGETS`. The last test of the session is its end."""
    with no_leaks(), serving(TARGETS) as found:
        yield found
        seconds = found.stop(is_from_terminal=True)
        print(f"\nstopped after {seconds:.1f} s")
        assert found.process.returncode == 0, found.output
        assert found.leftovers() == []


@pytest.fixture(scope="session")
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    """A client of the shared server."""
    with server.client() as found:
        yield found
