"""`make soak`, for some seconds: it finishes on a sound server, and notices one that keeps something of each batch."""

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(600)


def soak(*options: str) -> tuple[int, dict[str, Any]]:
    """Returns the exit status, and the figures of two cells."""
    command = [sys.executable, "-m", "tests.soak", "--minutes", "0.4", "--shapes", "cells", "--max-growth", "1", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1])["cells"] | {"stderr": done.stderr}


def test_a_sound_server_is_flat() -> None:
    status, figures = soak()
    assert status == 0, figures["stderr"]
    assert figures["wrong"] == 0
    assert figures["changes"]["roll back"] > 0
    assert sum(figures["exchanges"].values()) > 50


def test_a_leak_is_noticed() -> None:
    status, figures = soak("--leak-bytes", "500000")
    assert status == 1
    assert figures["series"]["cells: RSS bytes"]["verdict"] != "flat"
