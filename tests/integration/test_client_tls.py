"""The client over https, and through a proxy."""

import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dyorc.cli.main import _app as app  # pyright: ignore[reportPrivateUsage]
from dyorc.client import Retries
from dyorc.errors import ConfigurationError, TransportError
from tests.client_shells import SHELLS, shell
from tests.deadlines import TIMEOUT_S
from tests.scripted_server import Received, ScriptedServer, json_answer, scripted_server

MODELS = json_answer({"models": ["m"]})


@dataclass(frozen=True)
class Certificate:
    """A certificate for 127.0.0.1 that is its own authority, and its key."""

    chain: Path
    key: Path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Makes a certificate that nobody trusts by default."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not installed")
    folder = tmp_path_factory.mktemp("certificate")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test -keyout key -out chain"
    subprocess.run([*command.split(), "-addext", "subjectAltName=IP:127.0.0.1"], cwd=folder, check=True, capture_output=True)
    return Certificate(folder / "chain", folder / "key")


@pytest.fixture
def tls(certificate: Certificate) -> ssl.SSLContext:
    """Returns the server's TLS context."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.chain, certificate.key)
    return context


@pytest.fixture
def server(tls: ssl.SSLContext) -> Iterator[ScriptedServer]:
    """Starts a server that speaks TLS."""
    with scripted_server(tls) as found:
        found.on("/v2/models", MODELS)
        yield found


@pytest.mark.parametrize("kind", SHELLS)
def test_a_server_is_trusted_by_its_authority_or_without_a_check(
    kind: str, server: ScriptedServer, certificate: Certificate
) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate.chain))
    for verify in (certificate.chain, str(certificate.chain), trusting, False):
        with shell(kind, server.url, verify=verify) as client:
            assert client.models() == ["m"]


@pytest.mark.parametrize("kind", SHELLS)
def test_a_server_that_is_not_trusted_gets_nothing_and_is_not_asked_twice(kind: str, server: ScriptedServer) -> None:
    unhurried = Retries(max_attempts=2, first_backoff_s=100, max_backoff_s=100)
    with (
        shell(kind, server.url, api_key="secret", timeout_s=1000, retries=unhurried) as client,
        pytest.raises(TransportError, match=f"cannot connect to {server.url}.*certificate verify failed"),
    ):
        client.models()
    assert server.received == []


@pytest.mark.parametrize(
    "command", ["status", "top", "scale", "deploy", "undeploy m", "rollback m", "explain", "trace", "profile --seconds 0.1"]
)
def test_commands_trust_the_authority_that_they_are_given(
    command: str, server: ScriptedServer, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dyorc.cli.profile._py_spy", lambda: "py-spy")

    def run(*options: str) -> BaseException | None:
        return CliRunner().invoke(app, [*command.split(), "--url", server.url, *options]).exception

    assert isinstance(run("--ca", str(certificate.key)), ConfigurationError)
    assert not server.received
    run("--ca", str(certificate.chain))
    assert server.received


_FORK = """
import os, sys
from dyorc.client import Client
client = Client(sys.argv[1], verify=sys.argv[2])
client.models()
if pid := os.fork():
    os.waitpid(pid, 0)
    client.models()
else:
    client.models()
    client.close()
    os._exit(0)
"""


def test_a_fork_does_not_end_its_parents_session(server: ScriptedServer, certificate: Certificate) -> None:
    connections: list[int] = []

    def count(request: Received, connection: socket.socket) -> bool:
        connections.append(connection.getpeername()[1])
        return MODELS(request, connection)

    server.on("/v2/models", count)
    subprocess.run([sys.executable, "-c", _FORK, server.url, str(certificate.chain)], check=True, timeout=TIMEOUT_S)
    parent, child, parent_again = connections
    assert parent == parent_again != child


@pytest.mark.parametrize("kind", SHELLS)
def test_a_server_may_require_our_certificate(kind: str, tls: ssl.SSLContext, certificate: Certificate) -> None:
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(certificate.chain)
    with scripted_server(tls) as server:
        server.on("/v2/models", MODELS)
        with shell(kind, server.url, verify=certificate.chain, cert=(certificate.chain, certificate.key)) as client:
            assert client.models() == ["m"]
        with (
            shell(kind, server.url, verify=certificate.chain, retries=Retries(max_attempts=1)) as client,
            pytest.raises(TransportError, match=f"the connection to {server.url} broke: .*certificate required"),
        ):
            client.models()


@pytest.mark.parametrize("kind", SHELLS)
def test_a_proxy_is_used_only_if_it_is_named(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_server() as proxy, scripted_server() as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "")
        server.on("/v2/models", MODELS)
        proxy.on(f"{server.url}/v2/models", json_answer({"models": ["by proxy"]}))
        with shell(kind, server.url) as client:
            assert client.models() == ["m"]
        with shell(kind, server.url, proxy=proxy.url) as client:
            assert client.models() == ["by proxy"]
