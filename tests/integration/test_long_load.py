"""`make soak`, for some seconds: too short to say whether a server is flat, but all else of it happens."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(600)


def test_all_of_a_long_run_happens_in_a_short_one() -> None:
    command = [sys.executable, "-m", "tests.soak", "--minutes", "0.4", "--shapes", "cells", "--max-growth", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.stdout, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])["cells"]
    progress = [line for line in done.stderr.splitlines() if " exchanges, " in line]
    assert ", 0 wrong;" in progress[-1], done.stderr
    assert figures["changes"]["roll back"] > 0
    assert sum(figures["exchanges"].values()) > 50
    assert figures["series"]["cells: RSS bytes"]["size"] > 0
