"""What each part of the package imports."""

import re
import subprocess
import sys
from pathlib import Path

import dyorc
import dyorc.client
from dyorc.client import AsyncClient, Client


def _modules_after(code: str) -> set[str]:
    command = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_writing_programs_imports_neither_the_client_nor_the_engine() -> None:
    found = _modules_after("import dyorc")
    assert not {"httpx", "httpcore", "torch", "ray", "pydantic", "dyorc.client", "dyorc.engine", "dyorc.config"} & found


def test_the_client_imports_neither_torch_nor_the_server() -> None:
    found = _modules_after("import dyorc; dyorc.Client")
    assert "httpx" in found
    assert not {"torch", "ray", "zmq", "fastapi", "dyorc.gateway"} & found


def test_decoders_used_by_threads_are_made_when_imported() -> None:
    """With msgspec 0.22, threads that decode a type for the first time at the same time crash the process."""
    sources = Path(dyorc.client.__file__).parent.glob("*.py")
    assert not [path.name for path in sources if re.search(r"json\.decode\(|msgspec\.convert\(", path.read_text("utf-8"))]


def test_the_clients_are_public_names() -> None:
    assert (dyorc.Client, dyorc.AsyncClient) == (Client, AsyncClient)
    assert {"Client", "AsyncClient"} <= set(dyorc.__all__)
    assert all(hasattr(dyorc, name) for name in dyorc.__all__)
    assert not hasattr(dyorc, "Klient")
