"""Ctrl-C while a command still imports what it needs."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {imported!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["dyorc", {argument!r}]
from {module} import main
main()
"""


@pytest.mark.parametrize(
    ("module", "imported", "argument"),
    [
        ("dyorc.cli.__main__", "dyorc.cli.main", "--version"),
        ("dyorc.cli.__main__", "rich", "--help"),
        ("dyorc.supervisor.__main__", "dyorc.supervisor.supervising", "0"),
    ],
)
def test_a_command_that_is_interrupted_while_it_starts_ends_by_the_signal_and_prints_nothing(
    module: str, imported: str, argument: str
) -> None:
    program = PROGRAM.format(module=module, imported=imported, argument=argument)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


WITHOUT = "import sys; sys.modules[{!r}] = None; sys.argv = ['dyorc', {!r}]; from dyorc.cli.__main__ import main; main()"


@pytest.mark.parametrize(
    ("library", "command"), [("typer", "--version"), ("uvloop", "serve"), ("rich", "doctor"), ("numpy", "doctor")]
)
def test_a_library_that_is_missing_is_named_with_the_command_that_installs_it(library: str, command: str) -> None:
    program = WITHOUT.format(library, command)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"dyorc: the library {library}, which dyorc-core needs, is not installed as a whole: pip install"
    )
