"""`tritonclient.http` against a real `dyorc serve`, from an environment of its own."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.leaks import no_leaks
from tests.server_process import ServerProcess, serving

_ROOT = Path(__file__).parents[2]
_FOLDER = _ROOT / "tests" / "tritonclient"
_PYTHON = _ROOT / ".venv-tritonclient" / "bin" / "python"
_TIMEOUT_S = 120

pytestmark = pytest.mark.skipif(not _PYTHON.exists(), reason="tritonclient has no environment; `make test` makes it")


@pytest.fixture(scope="module")
def sharing() -> Iterator[ServerProcess]:
    """A server that lets clients share memory."""
    with no_leaks(), serving([f"{_FOLDER / 'workflow.py'}:mirror", "--allow-client-shm"]) as found:
        yield found
        if found.process.poll() is None:
            found.stop()
        assert found.leftovers() == []


def _client(server: ServerProcess, check: str) -> "subprocess.Popen[str]":
    command = [str(_PYTHON), "-W", "error", str(_FOLDER / "client.py"), server.url.removeprefix("http://"), check]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=server.folder
    )


def _finish(client: "subprocess.Popen[str]") -> None:
    """Lets it come to its end, which must be a good one."""
    with client:
        try:
            output, _ = client.communicate(timeout=_TIMEOUT_S)
        finally:
            client.kill()
    assert (client.returncode, output) == (0, ""), output


@pytest.mark.parametrize("check", ["binary-small", "binary-large", "json-small", "json-large", "shared-small", "shared-large"])
def test_the_client_gets_what_it_asks_for(sharing: ServerProcess, check: str) -> None:
    _finish(_client(sharing, check))


def test_a_clients_segment_outlives_the_server(sharing: ServerProcess) -> None:
    client = _client(sharing, "outlive")
    assert client.stdout is not None
    try:
        assert client.stdout.readline() == "held\n"
        sharing.stop()
    finally:
        _finish(client)
    assert sharing.process.returncode == 0, sharing.output
