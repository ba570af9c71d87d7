"""The documentation's site as it is built, and a server for it."""

import contextlib
import functools
import http.server
import os
import subprocess
from collections.abc import Generator
from pathlib import Path

from tests.threaded_server import answering

_ROOT = Path(__file__).parents[1]
PYTHON = _ROOT / ".venv-docs" / "bin" / "python"


def build(folder: Path) -> None:
    """Builds the site in a folder.

    Raises:
        AssertionError: If MkDocs warns of anything; the text says of what.
    """
    process = subprocess.run(
        [PYTHON, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=_ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


@contextlib.contextmanager
def served(folder: Path) -> Generator[str]:
    """Serves a folder on a free port of loopback, and yields its address."""
    with answering(functools.partial(_Quiet, directory=folder)) as address:
        yield address
