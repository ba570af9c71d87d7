"""Every promise of the protocol, by `tritonclient` and by hand, against `dyorc serve` without Ray; see `tests/conformance`.

`test_on_ray.py` tries them on Ray.
"""

import subprocess

import pytest

from dyorc.testing import ServerProcess
from tests.conformance.servers import ROOT, SERVERS, TRITONCLIENT, failures
from tests.deadlines import TIMEOUT_S
from tests.leaks import no_leaks
from tests.server_process import serving

pytestmark = pytest.mark.skipif(not TRITONCLIENT.exists(), reason="tritonclient has no environment; `make test` makes it")


_LONG = ("parted", "ocr")
_NAMES = [name for name, server in SERVERS.items() if server.in_process or server.is_parted or server.asgi]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] if name in _LONG else []) for name in _NAMES])
def test_every_promise_is_kept(name: str) -> None:
    with no_leaks():
        found = failures(name)
    assert not found, "\n".join(found)


def test_a_clients_segment_outlives_the_server() -> None:
    models = ROOT / "tests" / "conformance" / "models.py"
    with no_leaks(), serving([f"{models}:reverse_text", "--allow-client-shm"], in_process=True) as server:
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
