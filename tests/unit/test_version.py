"""The command says which version it is."""

import subprocess
from importlib.metadata import version

from tests.server_process import COMMAND


def test_the_command_says_its_version() -> None:
    done = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"dyorc {version('dyorc-core')}\n"
