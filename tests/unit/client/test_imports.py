"""What importing costs whom."""

import subprocess
import sys

import dyorc
from dyorc.client import AsyncClient, Client


def _modules_after(code: str) -> set[str]:
    command = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_who_uses_no_client_does_not_import_httpx() -> None:
    assert not {"httpx", "httpcore", "torch", "ray", "dyorc.client"} & _modules_after("import dyorc")


def test_the_client_imports_neither_torch_nor_the_server() -> None:
    found = _modules_after("import dyorc; dyorc.Client")
    assert "httpx" in found
    assert not {"torch", "ray", "zmq", "fastapi", "uvicorn", "dyorc.gateway"} & found


def test_the_clients_are_public_names() -> None:
    assert (dyorc.Client, dyorc.AsyncClient) == (Client, AsyncClient)
    assert {"Client", "AsyncClient"} <= set(dyorc.__all__)
    assert not hasattr(dyorc, "Klient")
