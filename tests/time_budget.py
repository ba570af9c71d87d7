"""Ends a run of tests in time: with `MINUTES_OF_TESTS=20`, hardly a test begins after twenty minutes, and the summary says so.
What has run decides the status. For CI, whose machines differ threefold in speed.
"""

import os
import time

import pytest
from _pytest.terminal import TerminalReporter

from dyorc.core.counts import count

MINUTES = "MINUTES_OF_TESTS"
"""Not `DYORC_...`: servers that tests start refuse such a variable if it is no setting."""


class TimeBudget:
    """Ends the session of the controller; its workers finish the tests that they have begun.

    Args:
        minutes: From now on.
    """

    def __init__(self, minutes: float) -> None:
        self._minutes = minutes
        self._until_s = time.monotonic() + 60 * minutes
        self._is_over = False
        self._num_run = 0
        self._session: pytest.Session | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keeps the session."""
        self._session = session

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts tests, and looks at the time after each."""
        if report.when != "teardown":
            return
        self._num_run += 1
        if self._session is not None and time.monotonic() > self._until_s:
            self._is_over = True
            for runner in (self._session, self._session.config.pluginmanager.getplugin("dsession")):  # alone, or with xdist
                if runner is not None:
                    runner.shouldstop = f"the {self._minutes:g} minutes are over"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Makes of the interruption a status: that of the tests that ran."""
        if self._is_over:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED if session.testsfailed else pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Says what is missing."""
        if self._is_over:
            text = f"NOT ALL TESTS RAN: the {self._minutes:g} minutes were over after {count(self._num_run, 'test')}"
            terminalreporter.write_line(text, bold=True)


def time_budget(config: pytest.Config) -> TimeBudget | None:
    """Returns the budget of a run, for its controller; None if there is none.

    Raises:
        pytest.UsageError: If the variable is not a number of minutes.
    """
    text = os.environ.get(MINUTES, "")
    if not text or hasattr(config, "workerinput"):
        return None
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < 1e6:
        raise pytest.UsageError(f"{MINUTES} is {text!r}, expected a number of minutes above 0")
    return TimeBudget(minutes)
