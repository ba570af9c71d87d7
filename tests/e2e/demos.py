"""Runs the examples' scripts as a user does."""

import subprocess
import sys
from pathlib import Path

_EXAMPLES = Path(__file__).parents[2] / "examples"


def run(example: str, script: str, *options: str) -> str:
    """Returns what an example's script prints."""
    command = [sys.executable, str(_EXAMPLES / example / script), *options]
    done = subprocess.run(command, cwd=_EXAMPLES.parent, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_demo(example: str, weights: str, *options: str, make: str = "train.py") -> str:
    """Returns what an example's demonstration prints; makes its weights before by a script, if these are missing."""
    if not (_EXAMPLES / example / "weights" / weights).is_file():
        run(example, make)
    return run(example, "demo.py", *options)
