"""Every promise of the protocol, by `tritonclient` and by hand, against a real `dyorc serve`; see `tests/conformance`."""

import subprocess

import pytest

from dyorc.testing import ServerProcess
from tests.conformance.servers import ROOT, SERVERS, TRITONCLIENT, check
from tests.deadlines import TIMEOUT_S
from tests.leaks import no_leaks
from tests.server_process import serving

pytestmark = pytest.mark.ray

_needs_tritonclient = pytest.mark.skipif(
    not TRITONCLIENT.exists(), reason="tritonclient has no environment; `make test` makes it"
)


@_needs_tritonclient
@pytest.mark.parametrize("name", SERVERS)
def test_every_promise_is_kept(name: str) -> None:
    with no_leaks():
        rows = list(check(name))
    failures = [f"{row.section}, {row.transport}, {row.name}: {row.detail}" for row in rows if not row.is_passed]
    assert rows
    assert not failures, "\n".join(failures)


@_needs_tritonclient
def test_a_clients_segment_outlives_the_server() -> None:
    models = ROOT / "tests" / "conformance" / "models.py"
    with no_leaks(), serving([f"{models}:reverse_text", "--allow-client-shm"]) as server:
        client = _client(server)
        assert client.stdout is not None
        try:
            assert client.stdout.readline() == "held\n"
            server.stop()
        finally:
            _finish(client)
        assert server.process.returncode == 0, server.output
        assert server.leftovers() == []


def _client(server: ServerProcess) -> "subprocess.Popen[str]":
    command = [str(TRITONCLIENT), "-W", "error", str(ROOT / "tests" / "conformance" / "outlive.py")]
    return subprocess.Popen(
        [*command, server.url.removeprefix("http://")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=server.temporary_folder,
    )  # fmt: skip


def _finish(client: "subprocess.Popen[str]") -> None:
    """Waits for the end of a process and checks that it succeeded."""
    with client:
        try:
            output, _ = client.communicate(timeout=TIMEOUT_S)
        finally:
            client.kill()
    assert (client.returncode, output) == (0, ""), output
