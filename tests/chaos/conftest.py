"""Checks that chaos tests leave nothing behind after their kills."""

from collections.abc import Iterator

import pytest

from dyorc.testing import ServerProcess
from tests.leaks import no_leaks
from tests.server_process import serving, target


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """Starts a server whose processes the tests kill; the last of them kills the server."""
    targets = [
        target("arithmetic", "quadruple"),
        target("arithmetic", "quadruple_by_pair"),
        target("guarded", "quadruple_either_way"),
    ]
    # Serve counts a silent replica as lost after three checks that take this long.
    with no_leaks(), serving(targets, DYORC_DEPLOYMENT__HEALTH_CHECK_TIMEOUT_S="3") as found:
        yield found
