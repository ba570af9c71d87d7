"""Servers while they import the user's modules: they can be stopped, and say what is wrong with the modules."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dyorc.testing import ServerProcess, serve_command, serving
from tests.deadlines import TIMEOUT_S

_APP = """
import numpy as np
from jaxtyping import Float

import dyorc


@dyorc.program(max_batch_size=4)
def classify(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    return x * 2
"""
_SLOW = "import time\nprint('importing', flush=True)\ntime.sleep(3600)\n"
_STUBBORN = f"import time\nprint('importing', flush=True)\ntry:\n    time.sleep(3600)\nexcept BaseException:\n    pass\n{_APP}"
_COMMAND = [sys.executable, "-P", "-m", "dyorc.cli.main"]
_SHADOWING = ("csv", "email", "html", "http", "json", "queue", "socket", "wave")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, of this process and of the servers."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "number", "code"),
    [
        (["serve", "--in-process", "--port", "0"], signal.SIGINT, _SLOW),
        (["serve", "--in-process", "--port", "0"], signal.SIGTERM, _STUBBORN),
        (["serve", "--in-process", "--port", "0", "--cells", "2"], signal.SIGINT, _SLOW),
        (["dev", "--port", "0"], signal.SIGTERM, _SLOW),
        (["orchestrator", "--in-process"], signal.SIGTERM, _SLOW),
    ],
    ids=["alone", "stubborn", "cells", "dev", "orchestrator"],
)
def test_a_signal_ends_a_server_that_imports(folder: Path, arguments: list[str], number: signal.Signals, code: str) -> None:
    (folder / "app.py").write_text(code)
    with ServerProcess([*_COMMAND, *arguments, "app.py:classify"]) as server:
        server.wait_for("^importing$")
        server.stop(number)
        assert server.process.returncode == 0, server.output
        assert set(server.lines) - {"importing", "Stopping ...", "Stopped."} <= {f"Listening on {url}" for url in _urls(server)}
        assert server.leftovers() == []


def _urls(server: ServerProcess) -> list[str]:
    return [line.removeprefix("Listening on ") for line in server.lines if line.startswith("Listening on http://127.0.0.1:")]


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "GeneratorExit", "SystemExit"])
@pytest.mark.parametrize("options", [[], ["--cells", "1"]])
def test_what_a_module_raises_is_one_message(folder: Path, error: str, options: list[str]) -> None:
    (folder / "app.py").write_text(f"raise {error}\n")
    with ServerProcess(serve_command("app.py:classify", *options, in_process=True)) as server:
        server.wait()
        assert server.process.returncode == 1
        assert server.lines[-1].startswith(f"dyorc: app.py cannot be imported: {error}")
        assert len(server.lines) <= 5, server.output


@pytest.mark.parametrize("options", [[], ["--cells", "1"]])
@pytest.mark.parametrize("target", ["app.py:classify", "app:classify"])
def test_files_with_names_of_the_standard_library_are_in_nobodys_way(folder: Path, options: list[str], target: str) -> None:
    (folder / "app.py").write_text(f"import {', '.join(_SHADOWING)}\n{_APP}")
    for name in _SHADOWING:
        (folder / f"{name}.py").write_text(f"raise RuntimeError('{name}.py')\n")
    with serving(target, *options, in_process=True) as server:
        assert "RuntimeError" not in server.output


def test_a_file_with_such_a_name_can_be_served(folder: Path) -> None:
    (folder / "wave.py").write_text(_APP)
    with serving("wave.py:classify", in_process=True):
        pass


def test_nothing_is_started_where_ray_is_missing(folder: Path) -> None:
    (folder / "app.py").write_text(_APP)
    code = "import sys; sys.modules['ray'] = None; from dyorc.cli.main import main; main()"
    command = [sys.executable, "-P", "-c", code, "serve", "app.py:classify", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'dyorc-core[ray]'" in done.stderr
