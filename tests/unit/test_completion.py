"""Shells complete what has been begun: the command line answers them by itself."""

import os
import subprocess
import sys

import pytest

_PROGRAM = "import sys; sys.argv = ['dyorc']; from dyorc.cli.main import main; main()"


@pytest.mark.parametrize(
    ("begun", "expected"),
    [("dyorc dep", ["deploy"]), ("dyorc roll", ["rollback"]), ("dyorc serve --in-pr", ["--in-process"]), ("dyorc nothing", [])],
)
def test_a_shell_completes_commands_and_options(begun: str, expected: list[str]) -> None:
    asked = {"_DYORC_COMPLETE": "complete_bash", "COMP_WORDS": begun, "COMP_CWORD": str(begun.count(" "))}
    done = subprocess.run([sys.executable, "-c", _PROGRAM], env=os.environ | asked, capture_output=True, text=True, check=False)
    assert done.stdout.split() == expected
    assert done.stderr == ""
