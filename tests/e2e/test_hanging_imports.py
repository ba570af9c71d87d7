"""Code that can be imported where it is tried, and not in the server: `dyorc deploy` fails, and the server goes on, and stops."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import dyorc
from dyorc.errors import DeployError
from dyorc.testing import serving
from tests.deadlines import TIMEOUT_S, wait_until
from tests.e2e.updates import App, X

_HANGS = """
import os, time
from pathlib import Path
number = len(list(Path("FOLDER").glob("import-*")))
(Path("FOLDER") / f"import-{number + 1}").touch()
if number == NUM_THAT_END:
    time.sleep(1000)
"""


def _hang(app: App, *, num_that_end: int) -> None:
    """Writes a version whose import ends so many times, and then does not."""
    app.write(2, lambda text: text + _HANGS.replace("FOLDER", str(app.folder)).replace("NUM_THAT_END", str(num_that_end)))


@pytest.mark.parametrize(
    ("options", "num_that_end"),
    [((), 1), (("--cells", "2"), 1), (("--cells", "2"), 2)],
    ids=["one process", "cell", "other cell"],
)
def test_an_import_that_never_ends_fails_its_deploy_and_neither_the_next_nor_the_stop(
    tmp_path: Path, options: tuple[str, ...], num_that_end: int
) -> None:
    app = App(tmp_path)
    limit = {"DYORC_DEPLOYMENT__IMPORT_TIMEOUT_S": "10"}
    with serving(app.target, *options, in_process=True, environment=limit) as server:
        with dyorc.Client(server.url, timeout_s=TIMEOUT_S) as client:
            _hang(app, num_that_end=num_that_end)
            with pytest.raises(
                DeployError, match=r"app\.py:flow cannot be loaded: importing it in the server, .* more than 10 s"
            ):
                client.deploy(app.target)
            app.write(3)
            client.deploy(app.target)
            assert client.infer("flow", x=X)[0] == 5
        server.stop(signal.SIGTERM)
        assert server.process.returncode == 0, server.output
        assert "Traceback" not in server.output
        assert "Thread 0x" not in server.output, "no cell was aborted"


@pytest.mark.parametrize("options", [(), ("--cells", "2")], ids=["one process", "cells"])
def test_a_server_stops_while_it_imports(tmp_path: Path, options: tuple[str, ...]) -> None:
    app = App(tmp_path)
    with ThreadPoolExecutor() as threads, serving(app.target, *options, in_process=True) as server:
        _hang(app, num_that_end=1)
        with dyorc.Client(server.url, timeout_s=TIMEOUT_S) as client:
            deploy = threads.submit(client.deploy, app.target)
            wait_until((tmp_path / "import-2").exists, "the server imports it")
            server.stop(signal.SIGTERM)
            assert server.process.returncode == 0, server.output
            assert "Traceback" not in server.output
            assert deploy.exception() is not None


def test_code_that_forks_is_deployed_and_its_copy_of_the_server_ends(tmp_path: Path) -> None:
    app = App(tmp_path)
    with serving(app.target, in_process=True) as server:
        with dyorc.Client(server.url, timeout_s=TIMEOUT_S) as client:
            app.write(2, lambda text: f"import os\nif child := os.fork():\n    os.waitpid(child, 0)\n{text}")
            client.deploy(app.target)
            assert client.infer("flow", x=X)[0] == 4
        server.wait_for("that the import of a user's module has forked came to the end of the import")
        server.stop(signal.SIGTERM)
        assert server.process.returncode == 0, server.output
        assert server.leftovers() == []
