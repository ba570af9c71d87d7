"""What signals mean for a server's process, and how what it has is brought to an end."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator

import pytest

from dyorc.server.stop_signals import Drain, StopSignals

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Generator[None]:
    """Begins with the default handlers, also under `nohup`, and restores what was there."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in _NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", _NUMBERS)
def test_each_of_the_signals_stops(number: signal.Signals) -> None:
    async def run() -> None:
        signals = StopSignals()
        async with signals.watch():
            signal.raise_signal(number)
            await signals.stop.wait()
        assert not signals.hurry.is_set()

    asyncio.run(run())


def test_handlers_that_others_install_do_not_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dyorc.server.stop_signals._AGAIN_S", 0.001)

    async def run() -> None:
        signals = StopSignals()
        async with signals.watch():
            signal.signal(signal.SIGTERM, lambda number, frame: None)  # as `ray.init` does
            while not signals.stop.is_set():
                await asyncio.sleep(0.005)
                signal.raise_signal(signal.SIGTERM)

    asyncio.run(run())


def test_sighup_is_left_alone_where_nohup_wants_it() -> None:
    async def run() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signals = StopSignals()
        async with signals.watch():
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
            await signals.stop.wait()
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN

    asyncio.run(run())


@pytest.mark.parametrize(("same_s", "hurries"), [(0.0, True), (3600.0, False)])
def test_another_signal_hurries_unless_it_is_the_same_wish(same_s: float, hurries: bool) -> None:
    async def run() -> None:
        signals = StopSignals(same_s=same_s)
        signals.receive()
        assert signals.stop.is_set()
        assert not signals.hurry.is_set()
        signals.receive()
        assert signals.hurry.is_set() is hurries

    asyncio.run(run())


class _Part:
    def __init__(self) -> None:
        self.asked: list[float] = []
        self.is_empty = asyncio.Event()

    async def drain(self, timeout_s: float) -> None:
        self.asked.append(timeout_s)
        if timeout_s:
            await self.is_empty.wait()


def test_all_parts_drain_side_by_side_and_not_one_after_another() -> None:
    async def run() -> None:
        parts = [_Part(), _Part()]
        draining = asyncio.create_task(Drain(10.0, asyncio.Event()).finish(*(part.drain for part in parts)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert [part.asked for part in parts] == [[10.0], [10.0]]
        for part in reversed(parts):
            part.is_empty.set()
        await draining
        assert [part.asked for part in parts] == [[10.0], [10.0]]

    asyncio.run(run())


def test_who_hurries_waits_for_none_of_them() -> None:
    async def run() -> None:
        parts, hurry = [_Part(), _Part()], asyncio.Event()
        draining = asyncio.create_task(Drain(10.0, hurry).finish(*(part.drain for part in parts)))
        await asyncio.sleep(0)
        parts[0].is_empty.set()
        hurry.set()
        await draining
        assert [part.asked for part in parts] == [[10.0, 0.0], [10.0, 0.0]]

    asyncio.run(run())


def test_a_server_that_is_told_to_stop_while_it_starts_is_cancelled() -> None:
    async def run() -> None:
        signals, ended = StopSignals(), list[str]()

        async def serve(has_started: Callable[[], None]) -> None:
            try:
                signal.raise_signal(signal.SIGTERM)
                await asyncio.Event().wait()  # as for a store that is away
            finally:
                ended.append("start")

        await signals.run(serve)
        assert ended == ["start"]

    asyncio.run(run())


def test_a_server_that_has_started_looks_itself() -> None:
    async def run() -> None:
        signals, ended = StopSignals(), list[str]()

        async def serve(has_started: Callable[[], None]) -> None:
            has_started()
            signal.raise_signal(signal.SIGTERM)
            await signals.stop.wait()
            await asyncio.sleep(0.01)
            ended.append("drain")

        await signals.run(serve)
        assert ended == ["drain"]

    asyncio.run(run())


def test_an_error_of_a_server_is_raised() -> None:
    async def serve(has_started: Callable[[], None]) -> None:
        raise OSError("the port is taken")

    async def run() -> None:
        await StopSignals().run(serve)

    with pytest.raises(OSError, match="taken"):
        asyncio.run(run())


_ENDING = """
import asyncio, os, signal, sys, time
from dyorc.server.stop_signals import StopSignals

signals = StopSignals(same_s={same_s})

async def serve(has_started):
    has_started()
    os.kill(os.getpid(), signal.SIGTERM)
    await signals.stop.wait()

class AtTheVeryEnd:
    def __del__(self, kill=os.kill, pid=os.getpid(), numbers=(signal.SIGTERM, signal.SIGINT)):
        for number in numbers:
            kill(pid, number)

sys.at_the_very_end = AtTheVeryEnd()
asyncio.run(signals.run(serve))
for number in (signal.SIGINT, signal.SIGTERM):
    os.kill(os.getpid(), number)
print("ended", flush=True)
"""


def test_repeated_signals_are_without_effect_until_the_process_has_ended() -> None:
    program = [sys.executable, "-c", _ENDING.format(same_s=3600.0)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


def test_a_signal_later_on_ends_a_process_that_does_not_come_to_its_end() -> None:
    program = [sys.executable, "-c", _ENDING.format(same_s=0.0)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, "", "")


def _status_of_a_fork_that_gets(number: signal.Signals) -> int:
    pid = os.fork()
    if not pid:
        os.kill(os.getpid(), number)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_signal_for_a_process_that_was_forked_from_a_server_ends_that_alone() -> None:
    async def run() -> None:
        signals = StopSignals()
        async with signals.watch():
            assert _status_of_a_fork_that_gets(signal.SIGTERM) == -signal.SIGTERM
            for _ in range(5):
                await asyncio.sleep(0)
            assert not signals.stop.is_set()

    asyncio.run(run())
