"""The commands of `tests` refuse numbers that would test nothing, and end what they have started."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import positive
from tests.fuzz.__main__ import main as fuzz
from tests.fuzz.entry_points import CORPUS

_ROOT = Path(__file__).parents[2]
_WAITS = "import sys; from tests.command_line import end_at_sigterm; end_at_sigterm(); print(flush=True); sys.stdin.read()"


@pytest.mark.parametrize("text", ["0", "-3", "1.5", "many"])
def test_a_number_of_tests_is_above_0(text: str) -> None:
    assert positive("7") == 7
    with pytest.raises(ValueError, match=r"expected a whole number|invalid literal"):
        positive(text)


@pytest.mark.parametrize("command", [["whole_server", "--seeds"], ["power_cuts", "--cuts"]])
@pytest.mark.parametrize("number", ["0", "-3"])
def test_a_command_that_would_test_nothing_is_refused(command: list[str], number: str) -> None:
    module, option = command
    process = subprocess.run(
        [sys.executable, "-m", f"tests.{module}", f"{option}={number}"], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert process.returncode == 2
    assert f"argument {option}: invalid positive value: '{number}'" in process.stderr


def test_sigterm_lets_a_command_clear_up() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WAITS], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert not errors


def test_an_input_of_the_fuzzers_is_read_once_more(capsys: pytest.CaptureFixture[str]) -> None:
    path = next(path for path in sorted((CORPUS / "job_records").glob("*")) if path.is_file())
    assert fuzz(["--target", "job_records", "--input", str(path)]) == 0
    assert capsys.readouterr().out.strip() in ("accepted", "refused, with a documented error")
