"""The alarm rings when it is due, as often as it is set, and not after it was closed."""

import asyncio
import contextlib
import time

import uvloop

from loadgen.alarm import Alarm


async def ring_at(*delays_ns: int) -> list[int]:
    """Returns by how much it rang after each time that was set."""
    rung: list[int] = []
    over = asyncio.Event()
    waiting = [time.monotonic_ns() + delay_ns for delay_ns in delays_ns]

    def ring() -> None:
        rung.append(time.monotonic_ns() - waiting.pop(0))
        if waiting:
            alarm.set(waiting[0])
        else:
            over.set()

    with contextlib.closing(Alarm(asyncio.get_running_loop(), ring)) as alarm:
        alarm.set(waiting[0])
        await asyncio.wait_for(over.wait(), 30)
        await asyncio.sleep(0.02)  # nothing more may ring
    return rung


def test_it_never_rings_too_early() -> None:
    for run in (asyncio.run, uvloop.run):
        late_ns = run(ring_at(-5_000_000, 0, 300_000, 1_500_000, 1_500_001, 40_000_000))

        assert len(late_ns) == 6
        assert min(late_ns) >= 0


def test_a_closed_alarm_does_not_ring() -> None:
    async def close_at_once() -> list[int]:
        rung: list[int] = []
        with contextlib.closing(Alarm(asyncio.get_running_loop(), lambda: rung.append(1))) as alarm:
            alarm.set(time.monotonic_ns() + 1_000_000)
        await asyncio.sleep(0.02)
        return rung

    assert uvloop.run(close_at_once()) == []
