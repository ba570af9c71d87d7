"""`dyorc dev`: a server that follows the changes of its code. Real processes and real files."""

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

import dyorc
from dyorc.testing import ServerProcess
from tests import oip
from tests.deadlines import wait_until
from tests.leaks import no_leaks
from tests.server_process import client_of

X = np.array([1, 2, 3, 4], np.float32)
NOON_NS = 1_700_000_000 * 10**9
APP = """
import os
import numpy as np
from jaxtyping import Float
import dyorc
from parts.scale import FACTOR


@dyorc.program
def scale(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    if (x < 0).any():
        os._exit(3)
    return x * FACTOR


@dyorc.workflow
async def scaled(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    return scale(x)
"""


class Project:
    """A folder with a workflow and a module that it imports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "parts").mkdir()
        (folder / "app.py").write_text(APP)
        self.set_factor("2")

    def set_factor(self, text: str, modified_ns: int | None = None) -> None:
        file = self.folder / "parts" / "scale.py"
        new = file.with_suffix(".new")
        new.write_text(f"FACTOR = {text}\n")
        if modified_ns is not None:
            os.utime(new, ns=(modified_ns, modified_ns))
        new.rename(file)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def server(project: Project) -> Iterator[ServerProcess]:
    command = [sys.executable, "-m", "dyorc.cli.main", "dev", "app.py:scaled", "--port", "0"]
    with no_leaks(), ServerProcess(command, folder=project.folder) as found:
        found.wait_for("Listening on")
        yield found
        found.stop(is_from_terminal=True)
        assert found.process.returncode == 0, found.output
        assert found.leftovers() == []


def answer_of(client: httpx.Client) -> list[float] | str:
    found = client.post("/v2/models/scaled/infer", content=oip.json_body({"x": X}).content)
    return oip.read(found).outputs["output"].tolist() if found.is_success else str(found.json()["error"])


def wait_for_answer(server: ServerProcess, wanted: list[float] | str) -> None:
    """Waits for an answer, or for a part of an error's text."""

    def is_there() -> bool:
        with client_of(server) as client:
            found = answer_of(client)
            return found == wanted if isinstance(wanted, list) else wanted in found

    wait_until(is_there, f"{wanted} is answered")


def test_a_change_is_served_from_the_same_port(project: Project, server: ServerProcess) -> None:
    wait_for_answer(server, [2, 4, 6, 8])
    server.wait_until_ready()
    project.set_factor("3", modified_ns=NOON_NS)
    wait_for_answer(server, [3, 6, 9, 12])
    server.wait_for(r"parts/scale\.py changed: loading again")
    server.wait_for(r"Ready again after [\d.]+ s\. Models: scale, scaled\.")
    project.set_factor("4", modified_ns=NOON_NS + 1)  # within the same second, and as long as before
    wait_for_answer(server, [4, 8, 12, 16])


def test_nobody_is_refused_while_it_loads_again(project: Project, server: ServerProcess) -> None:
    server.wait_until_ready()

    def ask() -> list[float] | str:
        with client_of(server) as client:  # a new connection each time
            return answer_of(client)

    with ThreadPoolExecutor(1) as threads:
        again = threads.submit(server.wait_for, "Ready again")
        project.set_factor("3")
        answers = [ask()]
        while not again.done():
            answers.append(ask())
    answers.append(ask())
    assert all(answer in ([2, 4, 6, 8], [3, 6, 9, 12]) for answer in answers), answers
    assert answers[-1] == [3, 6, 9, 12]


def test_an_import_error_is_answered_until_it_is_repaired(project: Project, server: ServerProcess) -> None:
    server.wait_until_ready()
    project.set_factor("1 / 0")
    wait_for_answer(server, "app.py cannot be imported: ZeroDivisionError: division by zero (scale.py, line 1)")
    server.wait_for("Waiting for a change")
    shown = server.output[server.output.index("Traceback") :]
    assert f'File "{project.folder}/app.py", line 6' in shown
    assert f'File "{project.folder}/parts/scale.py", line 1' in shown
    assert "dyorc/" not in shown
    project.set_factor("5")
    wait_for_answer(server, [5, 10, 15, 20])


def test_a_module_that_is_missing_at_the_start_may_come_later(project: Project) -> None:
    project.set_factor("None")
    (project.folder / "parts" / "scale.py").unlink()
    command = [sys.executable, "-m", "dyorc.cli.main", "dev", "app.py:scaled", "--port", "0"]
    with ServerProcess(command, folder=project.folder) as server:
        server.wait_for("Waiting for a change")
        wait_for_answer(server, "No module named 'parts.scale'")
        project.set_factor("2")
        wait_for_answer(server, [2, 4, 6, 8])


def test_a_crash_is_survived(project: Project, server: ServerProcess) -> None:
    server.wait_until_ready()
    with client_of(server) as client, pytest.raises(httpx.TransportError):
        client.post("/v2/models/scaled/infer", content=oip.json_body({"x": -X}).content)
    server.wait_for("ended with exit code 3")
    wait_for_answer(server, [2, 4, 6, 8])


def test_it_hears_of_its_cell_after_a_deploy(project: Project, server: ServerProcess) -> None:
    server.wait_until_ready()
    with dyorc.Client(server.url) as client:
        for number in (2, 3):
            client.deploy(f"{project.folder}/app.py:scaled", fresh=True)
            server.wait_for(rf"scale@{number}: ready")


def test_files_that_nothing_imports_change_nothing(project: Project, server: ServerProcess) -> None:
    server.wait_until_ready()
    server.wait_for("Watching 2 files")
    (project.folder / "other.py").write_text("broken(")
    os.utime(project.folder / "app.py")
    server.wait_for("Ready again")
    assert "other.py" not in server.output


STREAM = """
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
import numpy as np
from jaxtyping import Int
import dyorc
from parts.scale import FACTOR

Number = Int[np.ndarray, ""]


@dyorc.program(batched=False)
def numbers(start: Number) -> Iterator[Number]:
    yield start * FACTOR
    while not Path("go").exists():
        time.sleep(0.01)
    yield start * FACTOR


@dyorc.workflow
async def scaled(start: Number) -> AsyncIterator[Number]:
    async for number in numbers(start):
        yield number
"""


def test_a_stream_goes_on_while_the_code_is_loaded_again(project: Project) -> None:
    (project.folder / "app.py").write_text(STREAM)
    command = [sys.executable, "-m", "dyorc.cli.main", "dev", "app.py:scaled", "--port", "0"]
    with no_leaks(), ServerProcess(command, folder=project.folder) as server:
        server.wait_until_ready()
        with dyorc.Client(server.url) as client:
            parts = client.stream("scaled", start=21)
            assert next(parts).item() == 42
            project.set_factor("3")
            server.wait_for("Ready again")
            changed_s = time.monotonic()
            wait_until(lambda: time.monotonic() > changed_s + 3, "a cell that had to end at once would have ended")
            (project.folder / "go").touch()
            assert [part.item() for part in parts] == [42]
            assert [part.item() for part in client.stream("scaled", start=21)] == [63, 63]
        server.stop(is_from_terminal=True)
        assert server.process.returncode == 0, server.output
