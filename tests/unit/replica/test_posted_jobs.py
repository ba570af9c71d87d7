"""What is posted to a program's loop: one wake-up serves for many, and nothing is left behind."""

import asyncio
import threading
from typing import Any

from dyorc.replica.program_loop import ProgramLoop

_NUM = 1000


def hold(loop: ProgramLoop, go_on: threading.Event) -> None:
    """Keeps the loop busy until an event is set."""
    is_busy = threading.Event()

    def wait() -> None:
        is_busy.set()
        go_on.wait()

    loop.post(wait)
    is_busy.wait()


def counted_wake_ups(loop: ProgramLoop) -> list[int]:
    """Notes from now on how often the loop is woken."""
    wake_ups: list[int] = []
    wake = loop.loop.call_soon_threadsafe

    def counting(*arguments: Any, **options: Any) -> asyncio.Handle:
        wake_ups.append(1)
        return wake(*arguments, **options)

    loop.loop.call_soon_threadsafe = counting
    return wake_ups


def test_many_jobs_that_are_posted_while_the_loop_is_busy_cost_one_wake_up() -> None:
    loop = ProgramLoop("busy")
    go_on, is_over = threading.Event(), threading.Event()
    try:
        hold(loop, go_on)
        wake_ups = counted_wake_ups(loop)
        ran: list[int] = []
        for number in range(_NUM):
            loop.post(lambda number=number: ran.append(number))
        loop.post(is_over.set)
        go_on.set()
        is_over.wait()
        assert ran == list(range(_NUM))
        assert len(wake_ups) == 1
    finally:
        loop.stop()
        loop.join(5)


def test_jobs_of_many_threads_all_run_in_the_order_of_each() -> None:
    loop = ProgramLoop("shared")
    ran: list[tuple[int, int]] = []
    try:
        threads = [
            threading.Thread(
                target=lambda at=at: [loop.post(lambda number=number: ran.append((at, number))) for number in range(_NUM)]
            )
            for at in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        loop.run(lambda: None).result()
        is_over = threading.Event()
        loop.post(is_over.set)
        is_over.wait()
        for at in range(4):
            assert [number for each, number in ran if each == at] == list(range(_NUM))
    finally:
        loop.stop()
        loop.join(5)


def test_a_job_that_raises_does_not_keep_those_behind_it() -> None:
    loop = ProgramLoop("odd")
    go_on, is_over = threading.Event(), threading.Event()
    loop.loop.set_exception_handler(lambda *_: None)
    try:
        hold(loop, go_on)
        loop.post(lambda: [][0])
        loop.post(is_over.set)
        go_on.set()
        assert is_over.wait(30)
    finally:
        loop.stop()
        loop.join(5)
