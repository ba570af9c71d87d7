"""A run of tests ends in time, says so, and has the status of the tests that ran."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_CONFTEST = """
from tests.time_budget import time_budget

def pytest_configure(config):
    if (budget := time_budget(config)) is not None:
        budget._until_s = 0.0  # it is over with the first test
        config.pluginmanager.register(budget)
"""


def _run(folder: Path, minutes: str, *options: str, fails: bool = False) -> tuple[int, str]:
    (folder / "conftest.py").write_text(_CONFTEST)
    (folder / "test_some.py").write_text(
        f"import pytest\n@pytest.mark.parametrize('n', range(50))\ndef test_it(n):\n    assert not {fails}\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "MINUTES_OF_TESTS": minutes}
    done = subprocess.run(
        [*command, *options, str(folder)], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "side by side"])
def test_no_test_begins_after_the_end(tmp_path: Path, options: tuple[str, ...]) -> None:
    status, text = _run(tmp_path, "20", *options)
    assert status == 0
    assert "NOT ALL TESTS RAN: the 20 minutes were over after " in text
    assert "50 passed" not in text


def test_a_test_that_failed_before_the_end_counts(tmp_path: Path) -> None:
    status, text = _run(tmp_path, "20", fails=True)
    assert status == 1
    assert "1 failed" in text


_HANGS = """
import signal, time

def test_that_hangs():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])  # as in C, where no limit of a test ends it
    time.sleep(600)

def test_that_passes():
    pass
"""
_CONFTEST_OF_A_SECOND = """
from tests.time_budget import TimeBudget

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(TimeBudget(0.01, 0.2))
"""


def test_a_test_that_hangs_is_named_has_failed_and_can_run_again(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(_CONFTEST_OF_A_SECOND)
    (tmp_path / "test_hanging.py").write_text(_HANGS)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-c", os.devnull, "--rootdir", str(tmp_path), "--timeout", "5"]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1, done.stdout
    assert "DID NOT END: test_hanging.py::test_that_hangs" in done.stdout
    assert "test_that_hangs" in (tmp_path / ".pytest_cache/v/cache/lastfailed").read_text()


def test_without_a_budget_all_tests_run(tmp_path: Path) -> None:
    status, text = _run(tmp_path, "")
    assert status == 0
    assert "50 passed" in text
    assert "NOT ALL" not in text


@pytest.mark.parametrize("minutes", ["x", "0", "-1", "nan"])
def test_a_budget_that_is_none_is_refused(tmp_path: Path, minutes: str) -> None:
    status, text = _run(tmp_path, minutes)
    assert status == 4
    assert f"MINUTES_OF_TESTS is '{minutes}', expected a number of minutes above 0" in text
