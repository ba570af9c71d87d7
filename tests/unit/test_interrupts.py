"""Signals while a command still imports what it needs."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys

if signal.getsignal({number}) is signal.SIG_IGN:  # as under nohup
    signal.signal({number}, signal.SIG_DFL)

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {imported!r}:
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Interrupting())
sys.argv = ["dyorc", {argument!r}]
from {module} import main
main()
"""


@pytest.mark.parametrize(("imported", "argument"), [("dyorc.cli.main", "--version"), ("rich", "--help")])
def test_a_command_that_is_interrupted_while_it_starts_ends_by_the_signal_and_prints_nothing(
    imported: str, argument: str
) -> None:
    program = PROGRAM.format(module="dyorc.cli.__main__", imported=imported, argument=argument, number=int(signal.SIGINT))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("module", "imported", "argument"),
    [
        ("dyorc.cli.__main__", "dyorc.cli.main", "serve"),
        ("dyorc.cli.__main__", "importlib.metadata", "serve"),
        ("dyorc.cli.__main__", "rich", "gateway"),
        ("dyorc.cli.__main__", "uvloop", "orchestrator"),
        ("dyorc.cli.__main__", "typer", "dev"),
        ("dyorc.supervisor.__main__", "dyorc.supervisor.supervising", "0"),
    ],
)
def test_a_server_that_is_stopped_while_it_starts_says_so_in_a_line_and_ends_by_the_signal(
    module: str, imported: str, argument: str, number: signal.Signals
) -> None:
    program = PROGRAM.format(module=module, imported=imported, argument=argument, number=int(number))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-number, "")
    assert done.stderr == f"dyorc: {number.name} has ended the server while it started\n"


def test_a_signal_that_comes_between_two_programs_of_a_server_waits_for_the_second() -> None:
    second = "from dyorc.system.interrupts import end_by_signals_at_start as handle; print('second', flush=True); handle()"
    program = f"""
import os, signal, sys
from dyorc.system.interrupts import end_by_signals_at_start, hold_signals_back
end_by_signals_at_start()
hold_signals_back()
os.kill(os.getpid(), signal.SIGTERM)
os.execv(sys.executable, [sys.executable, "-c", {second!r}])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "second\n")
    assert done.stderr == "dyorc: SIGTERM has ended the server while it started\n"


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
