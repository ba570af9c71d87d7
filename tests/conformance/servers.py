"""The servers that are checked, and the scripts that check them. Used by the command line and by the tests."""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from dyorc.testing import ServerProcess
from tests.conformance.rows import Row, complain
from tests.parted import cluster
from tests.server_process import server_of

_HERE = Path(__file__).resolve().parent
ROOT = _HERE.parents[1]
TRITONCLIENT = ROOT / ".venv-tritonclient" / "bin" / "python"
_SCRIPT_TIMEOUT_S = 600.0
_OF_LIBRARIES = "/.ses"
"""A file that the libraries of the OCR example leave in the folder for temporary files."""
UVICORN_URL = r"Uvicorn running on (\S+)"
_NO_GRPC = "127.0.0.1:1"
"""An address where nobody listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """How one of them is started.

    Attributes:
        in_process: Whether it runs without Ray.
        is_parted: Whether clients talk to a gateway, and an orchestrator in another process runs the programs.
        asgi: The application that uvicorn serves instead, such as ``module:server``; it has no gRPC.
        loads_all: Whether all its models can be loaded, so that it says when it is ready.
        repeats: The server whose checks it has to pass as well; the page shows them once.
        is_tried_by_hand: Whether the checks that `tritonclient` cannot make run as well.
    """

    targets: Sequence[str]
    in_process: bool = False
    is_parted: bool = False
    asgi: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    loads_all: bool = True
    repeats: str = ""
    is_tried_by_hand: bool = False


def _models(*names: str) -> list[str]:
    return [f"{_HERE / 'models.py'}:{name}" for name in names]


SERVERS: dict[str, Server] = {
    "main": Server(
        targets=[
            f"{ROOT / 'examples' / 'digits' / 'workflow.py'}:classify",
            *_models("mirror", "every_type", "behave", "reverse_text"),
            f"{_HERE / 'streaming_models.py'}:count",
            "--allow-client-shm",
        ],
        is_tried_by_hand=True,
    ),
    "closed": Server(
        targets=_models("behave", "broken"),
        in_process=True,
        environment={"DYORC_GATEWAY__MAX_REQUESTS": "4"},
        loads_all=False,
    ),
    "cell": Server(
        targets=[
            f"{ROOT / 'examples' / 'digits' / 'workflow.py'}:classify",
            *_models("mirror", "every_type", "behave", "reverse_text"),
            f"{_HERE / 'streaming_models.py'}:count",
            "--allow-client-shm",
        ],
        in_process=True,
        repeats="main",
        is_tried_by_hand=True,
    ),
    "parted": Server(
        targets=[
            f"{ROOT / 'examples' / 'digits' / 'workflow.py'}:classify",
            *_models("mirror", "every_type", "behave", "reverse_text"),
            f"{_HERE / 'streaming_models.py'}:count",
        ],
        is_parted=True,
        repeats="main",
        is_tried_by_hand=True,
    ),
    "uvicorn": Server(targets=(), asgi="tests.conformance.asgi_models:server", repeats="main", is_tried_by_hand=True),
    "ocr": Server(targets=[f"{ROOT / 'examples' / 'ocr' / 'workflow.py'}:ocr"], in_process=True),
}


if importlib.util.find_spec("ngh2") is not None:
    SERVERS["http2"] = replace(SERVERS["cell"], environment={"DYORC_GATEWAY__GRPC_SERVER": "nghttp2"})


def check(name: str, only: str = "") -> Iterator[Row]:
    """Starts a server and runs its checks; yields each row as soon as it is known.

    Raises:
        RuntimeError: If the server does not start, or a script of checks ends with an error.
    """
    server = SERVERS[name]
    with (
        _started(server) as process,
        tempfile.TemporaryDirectory(prefix="page-") as folder,
    ):
        url = process.wait_for(UVICORN_URL)[1] if server.asgi else process.url
        if server.asgi:
            pass  # its programs are loaded when it listens
        elif server.loads_all:
            process.wait_until_ready()
        else:
            process.wait_for(r"broken: failing")
            process.wait_for(r"behave_program: ready")
        if not process.grpc_address and not server.asgi:
            complain("the server says no gRPC address")
        if name == "ocr":
            _draw_page(Path(folder))
        addresses = (url, process.grpc_address or _NO_GRPC)
        command = [
            str(TRITONCLIENT),
            str(_HERE / "checks.py"),
            server.repeats or name,
            *addresses,
            "--folder",
            folder,
            "--only",
            only,
        ]
        rows = itertools.chain(
            _rows(command),
            _rows([sys.executable, "-m", "tests.conformance.checks_raw", url, "--only", only]) if server.is_tried_by_hand else (),
        )
        yield from (row for row in rows if not (server.asgi and _is_of_our_server(row)))
        process.stop()
        left = [one for one in process.leftovers() if not one.endswith(_OF_LIBRARIES)]
        yield Row(
            "the server itself",
            name,
            "ends well and leaves nothing",
            process.process.returncode == 0 and not left,
            str(left or ""),
        )


@contextmanager
def _started(server: Server) -> Generator[ServerProcess]:
    """Starts a server; yields the process that clients talk to."""
    if server.asgi:
        command = [sys.executable, "-m", "uvicorn", "--port", "0", "--no-access-log", server.asgi]
        with ServerProcess(command, folder=ROOT) as process:
            yield process
        return
    if not server.is_parted:
        with server_of(server.targets, in_process=server.in_process, **server.environment) as process:
            yield process
        return
    with cluster() as found, found.orchestrator(server.targets), found.gateway("--allow-client-shm") as gateway:
        yield gateway


_OF_DEPLOYMENTS = frozenset({"load of what is served", "load and unload of an unknown model"})
"""An application in another server has no further versions to load: its other processes would not have them."""


def _is_of_our_server(row: Row) -> bool:
    """Returns whether a row is about what an application in another server has not: gRPC, and versions to load."""
    return row.transport.startswith("grpc") or row.name in _OF_DEPLOYMENTS


def failures(name: str) -> list[str]:
    """Runs a server's checks and returns a line for each promise that it breaks.

    Raises:
        RuntimeError: If the server does not start, or a script of checks ends with an error, or checks nothing.
    """
    rows = list(check(name))
    if not rows:
        raise RuntimeError(f"server {name!r} was checked for nothing")
    return [f"{row.section}, {row.transport}, {row.name}: {row.detail}" for row in rows if not row.is_passed]


def _draw_page(folder: Path) -> None:
    """Draws a page for the OCR example, and writes down its texts."""
    file = ROOT / "examples" / "ocr" / "sample_page.py"
    spec = importlib.util.spec_from_file_location("sample_page", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page, texts = module.draw_page(seed=1, num_lines=4)
    np.save(folder / "page.npy", page)
    (folder / "page.txt").write_text("\n".join(texts))


def _rows(command: Sequence[str]) -> Iterator[Row]:
    with _running(command) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield Row.of_line(line)
    if process.returncode != 0:
        raise RuntimeError(f"{command} ended with {process.returncode}")


@contextmanager
def _running(command: Sequence[str]) -> Generator[subprocess.Popen[str]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        timer = threading.Timer(_SCRIPT_TIMEOUT_S, process.kill)
        timer.start()
        try:
            yield process
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
