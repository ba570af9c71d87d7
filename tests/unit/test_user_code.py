"""What users' modules may do while they are imported in our process."""

import asyncio
import contextlib
import io
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Generator

import numpy as np
import pytest
import structlog

from dyorc.config import LogsConfig
from dyorc.replica.user_code import import_on_own_thread, import_outside_of_loop, own_context
from dyorc.server.stop_signals import handle_pending_signals
from dyorc.telemetry import logs

pytestmark = pytest.mark.anyio

_FORKS = """
import os
from dyorc.replica.user_code import import_outside_of_loop
child = import_outside_of_loop(os.fork)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else "goes on", flush=True)
"""


@contextlib.contextmanager
def lines_of_a_process() -> Generator[io.StringIO]:
    """Logs as a process does that has set up its logs, and yields what it writes. Afterwards, everything is as before."""
    before, lists = structlog.get_config(), (logs._current, logs._stream, logs._ours, logs._theirs)  # pyright: ignore[reportPrivateUsage]
    with contextlib.redirect_stderr(io.StringIO()) as lines:
        try:
            logs.set_up(LogsConfig(format="json"))
            yield lines
        finally:
            for each in lists:
                each.clear()
            structlog.configure(**before)


async def answer() -> int:
    await asyncio.sleep(0)
    return 42


async def test_a_module_may_run_a_loop_and_ours_goes_on() -> None:
    loop = asyncio.get_running_loop()
    for run in (import_outside_of_loop, import_on_own_thread):
        assert run(lambda: asyncio.run(answer())) == 42
        assert asyncio.get_running_loop() is loop
        await asyncio.sleep(0)
        with pytest.raises(ZeroDivisionError):
            run(lambda: 1 / 0)
        assert asyncio.get_running_loop() is loop


async def test_a_server_is_told_to_stop_whatever_handlers_a_module_sets() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    try:

        def meddle() -> None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.set_wakeup_fd(-1)

        import_outside_of_loop(meddle)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(60):
            await stop.wait()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def test_settings_in_the_context_hold_for_programs_only() -> None:
    before = np.geterr()
    import_outside_of_loop(lambda: np.seterr(all="raise"))
    try:
        assert np.geterr() == before
        assert own_context().run(np.geterr)["divide"] == "raise"
    finally:
        import_outside_of_loop(lambda: np.seterr(**before))


def test_warnings_that_become_errors_are_not_those_of_our_own_code() -> None:
    with warnings.catch_warnings(record=True) as shown:
        import_outside_of_loop(lambda: warnings.simplefilter("error"))
        with pytest.raises(RuntimeWarning):
            warnings.warn_explicit("theirs", RuntimeWarning, "app.py", 1, module="app")
        warnings.warn_explicit("ours", RuntimeWarning, "cell.py", 1, module="dyorc.cells.orchestrator_cell")
        assert [str(each.message) for each in shown] == ["ours"]


def test_our_lines_and_those_of_a_module_each_have_their_own_form() -> None:
    with lines_of_a_process() as lines:
        ours, theirs = structlog.get_logger("dyorc.cells"), io.StringIO()

        def meddle() -> None:
            structlog.configure([structlog.processors.KeyValueRenderer()], logger_factory=structlog.PrintLoggerFactory(theirs))

        import_outside_of_loop(meddle)
        ours.warning("from_us")
        structlog.get_logger("app").warning("from_them")
        assert '"event":"from_us"' in lines.getvalue()
        assert "from_them" not in lines.getvalue()
        assert theirs.getvalue() == "event='from_them'\n"


def test_a_process_that_a_module_forks_ends_where_its_import_ends() -> None:
    ended = subprocess.run([sys.executable, "-c", _FORKS], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == "1\n"
    assert "came to the end of the import, and was ended" in ended.stderr


async def test_a_signal_ends_an_import_and_reaches_the_loop_even_if_the_module_suppresses_it() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    before = signal.getsignal(signal.SIGTERM)
    try:

        def import_slowly() -> None:
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
                pytest.fail("the import goes on")

        with pytest.raises(asyncio.CancelledError):
            import_outside_of_loop(import_slowly)
        assert signal.getsignal(signal.SIGTERM) is before
        async with asyncio.timeout(60):
            await stop.wait()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def test_a_signal_that_came_while_the_loop_stood_still_cancels_before_the_import() -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(handle_pending_signals())
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await asyncio.sleep(0)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(asyncio.CancelledError):
            await task
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
