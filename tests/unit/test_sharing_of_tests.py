"""`tests/conftest.py` hands tests out to processes; one that crashes costs one test, and the run ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_SOME = """
import os, pytest

@pytest.mark.parametrize("n", range({number}))
def test_it(n):
    if n == {crashes}:
        os._exit(3)
"""
_CONFTEST = """
from pathlib import Path
from tests import conftest
from tests.conftest import pytest_xdist_make_scheduler

conftest._ROOT = Path(__file__).parent
"""


@pytest.mark.parametrize(("number", "crashes"), [(12, 11), (12, 5), (2, 0)], ids=["the last", "one between", "the first"])
def test_a_crash_costs_one_test(tmp_path: Path, number: int, crashes: int) -> None:
    (tmp_path / "test_some.py").write_text(_SOME.format(number=number, crashes=crashes))
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert f"1 failed, {number - 1} passed" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("crashed while running") == 2  # of the test, and of the summary
