"""How commands say numbers and reasons."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dyorc.core.counts import count
from dyorc.errors import without_errno
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.run import run
from loadgen.targets.base import TargetSpec


def test_a_number_has_its_noun_in_the_right_form() -> None:
    assert [count(number, "round") for number in (0, 1, 2, 1200)] == ["0 rounds", "1 round", "2 rounds", "1,200 rounds"]
    assert count(2, "process", "processes") == "2 processes"


def test_the_systems_numbers_of_errors_are_left_out(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        (tmp_path / "none").read_text()
    assert (
        without_errno(f"it cannot be read: {caught.value}") == f"it cannot be read: No such file or directory: '{tmp_path}/none'"
    )


def _error_of(*arguments: str, module: str = "dyorc.cli") -> str:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2)
    return done.stderr.strip()


def test_a_server_that_is_not_there_and_a_file_that_is_not_are_said_without_numbers(tmp_path: Path) -> None:
    refused = _error_of("status", "--url", "127.0.0.1:9")
    reason = "ConnectError: Connection refused; is the server started, and is this its port?"
    assert refused == f"dyorc: cannot connect to http://127.0.0.1:9: {reason}"
    missing = _error_of("config", "check", f"{tmp_path}/none.toml")
    assert missing.endswith(f"cannot be read: No such file or directory: '{tmp_path}/none.toml'")
    assert "Errno" not in missing


def test_a_rate_that_no_worker_can_send_is_refused() -> None:
    spec = TargetSpec(protocol="http", url="http://127.0.0.1:9", model="x")
    with pytest.raises(ValueError, match="a rate of 4,000,000 requests per second from 2 workers, expected at most 200,000"):
        run("x", spec, Pool(inputs=[{}]), Load(arrivals="poisson", rate_rps=4e6, num_workers=2, duration_s=1))


def test_a_module_that_ends_python_is_said_by_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import sys\nsys.exit('no licence')\n")
    printed = _error_of("serve", f"{tmp_path}/app.py:flow", "--in-process", "--port", "0")
    assert printed.splitlines()[-1] == "dyorc: app.py cannot be imported: SystemExit: no licence (app.py, line 2)"
    assert len(printed.splitlines()) < 8


@pytest.mark.parametrize("command", ["", "serve", "load run", "plan", "deploy"])
def test_help_cuts_no_word_in_a_narrow_terminal(command: str) -> None:
    environment = {**os.environ, "COLUMNS": "40"}
    arguments = [sys.executable, "-m", "dyorc.cli", *command.split(), "--help"]
    printed = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment).stdout
    assert "--help" in printed
    assert "…" not in printed
