"""Ends a run of tests in time: with `MINUTES_OF_TESTS=20`, hardly a test begins after twenty minutes, and the summary says so.
What has run decides the status. For CI, whose machines differ threefold in speed.
"""

import _thread
import os
import threading
import time

import pytest
from _pytest.terminal import TerminalReporter

from dyorc.core.counts import count

MINUTES = "MINUTES_OF_TESTS"
"""Not `DYORC_...`: servers that tests start refuse such a variable if it is no setting."""
_MORE_MINUTES = 1.5
"""How long tests that have begun may still take. No limit within a test ends one that hangs in C."""


class TimeBudget:
    """Ends the session of the controller; its workers finish the tests that they have begun, for a while.

    Args:
        minutes: From now on.
        more_minutes: What tests that have begun may take after that. A test that runs longer has failed, for `--last-failed` too.
    """

    def __init__(self, minutes: float, more_minutes: float = _MORE_MINUTES) -> None:
        self._minutes = minutes
        self._until_s = time.monotonic() + 60 * minutes
        self._is_over = False
        self._num_run = 0
        self._running = dict[str, None]()
        self._session: pytest.Session | None = None
        self._last_resort = threading.Timer(60 * (minutes + more_minutes), self._interrupt)
        self._last_resort.daemon = True
        self._was_interrupted = False

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keeps the session."""
        self._session = session
        self._last_resort.start()

    def _interrupt(self) -> None:
        self._is_over = self._was_interrupted = True
        _thread.interrupt_main()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Remembers what runs."""
        self._running[nodeid] = None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts tests, and looks at the time after each."""
        if report.when != "teardown":
            return
        self._running.pop(report.nodeid, None)
        self._num_run += 1
        if self._session is not None and time.monotonic() > self._until_s:
            self._is_over = True
            for runner in (self._session, self._session.config.pluginmanager.getplugin("dsession")):  # alone, or with xdist
                if runner is not None:
                    runner.shouldstop = f"the {self._minutes:g} minutes are over"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Makes of the interruption a status: that of the tests that ran, and failed if one did not end."""
        self._last_resort.cancel()
        if not self._is_over:
            return
        session.exitstatus = pytest.ExitCode.TESTS_FAILED if session.testsfailed else pytest.ExitCode.OK
        if self._was_interrupted:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            if (last_failed := session.config.pluginmanager.getplugin("lfplugin")) is not None:
                last_failed.lastfailed.update(dict.fromkeys(self._running, True))

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Says what is missing."""
        if self._is_over:
            text = f"NOT ALL TESTS RAN: the {self._minutes:g} minutes were over after {count(self._num_run, 'test')}"
            terminalreporter.write_line(text, bold=True)
        if self._was_interrupted:
            for test in self._running or ["no test, but the run"]:
                terminalreporter.write_line(f"DID NOT END: {test}", bold=True)


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
