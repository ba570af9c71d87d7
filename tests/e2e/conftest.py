"""Starts one server for all tests of a module, since a start takes seconds. It is stopped as a user would stop it, and must leave
nothing."""

from collections.abc import Iterator

import httpx
import pytest

from dyorc.testing import ServerProcess
from tests.leaks import no_leaks
from tests.server_process import client_of, serving, target

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


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """Serves `TARGETS`. Its shutdown is tested too."""
    with no_leaks(), serving(TARGETS) as found:
        yield found
        seconds = found.stop(is_from_terminal=True)
        print(f"\nstopped after {seconds:.1f} s")
        assert found.process.returncode == 0, found.output
        assert found.leftovers() == []


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    """Yields a client of the shared server."""
    with client_of(server) as found:
        yield found
