"""How long a batch took is told without the time in which others had its place."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from dyorc.cells.batches import LocalBatch, run_batch
from dyorc.replica.batch_results import BatchError
from tests.deadlines import wait_until

BATCH = LocalBatch("r", 1, 1, [], (), (), 0.0)


class _Program:
    """Stands for a loaded program: calls a function instead of computing. How long that takes is told all the same."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work

    def run(self, *_: object) -> BatchError:
        self._work()
        return BatchError("ValueError", "no results are needed here", "")


class _Results:
    devices = None

    def reserve(self, *_: object) -> None: ...

    def done(self) -> None: ...


class _Busy:
    """A thread that computes in Python and gives the interpreter back only when it is asked to."""

    def __init__(self) -> None:
        self.is_over = False

    def __call__(self) -> None:
        while not self.is_over:
            sum(range(50))


@contextmanager
def busy_thread() -> Iterator[Callable[[], float]]:
    """Yields a function that returns for how long a busy thread has computed."""
    busy = _Busy()
    thread = threading.Thread(target=busy)
    thread.start()
    assert thread.ident is not None
    clock = time.pthread_getcpuclockid(thread.ident)
    try:
        yield lambda: time.clock_gettime(clock)
    finally:
        busy.is_over = True
        thread.join()


def ran(work: Callable[[], object]) -> Any:
    """Runs a batch that does this."""
    return run_batch(BATCH, cast(Any, _Program(work)), cast(Any, _Results()))


def give_the_interpreter_away(until: Callable[[], bool]) -> None:
    """Does what a library does that computes without the interpreter, again and again, for no time at all."""
    while not until():
        time.sleep(0)


def test_time_in_which_another_thread_had_the_interpreter_does_not_count() -> None:
    """Where the system does not wake it in time, a thread does not learn what it has waited for: it is given some chances."""
    with busy_thread() as computed_s:
        wait_until(lambda: computed_s() > 0, "the thread computes")

        def is_told_apart() -> bool:
            before_s, began_s = computed_s(), time.perf_counter()
            found = ran(lambda: give_the_interpreter_away(lambda: computed_s() > before_s + 0.02))
            elapsed_s, others_s = time.perf_counter() - began_s, computed_s() - before_s
            return found.wall_s < elapsed_s - 0.5 * others_s

        assert any(is_told_apart() for _ in range(100))


def test_time_in_which_a_program_sleeps_counts_whoever_computes_meanwhile() -> None:
    with busy_thread():
        found = ran(lambda: time.sleep(0.3))
    assert found.wall_s > 0.1, "all but the wait for the interpreter at its end, which is long on a busy machine"


def test_time_in_which_a_program_computes_counts() -> None:
    def compute() -> None:
        end_s = time.thread_time() + 0.02
        while time.thread_time() < end_s:
            pass

    with busy_thread():
        found = ran(compute)
    assert found.wall_s >= found.cpu_s >= 0.02


def compute_in_python() -> None:
    """Keeps the interpreter as long as it may, for a hundredth of a second of computing."""
    end_s = time.thread_time() + 0.01
    while time.thread_time() < end_s:
        sum(range(50))


def test_threads_that_take_turns_do_not_overlap() -> None:
    with busy_thread():
        found = [ran(compute_in_python) for _ in range(10)]
    assert sum(each.overlap_s for each in found) < 0.4 * sum(each.cpu_s for each in found)


def test_threads_that_compute_without_the_interpreter_overlap() -> None:
    """Where this process has one core for a moment, they cannot: they are given some chances."""
    text, is_over = bytes(1 << 20), threading.Event()

    def digest() -> None:
        hashlib.sha256(text)

    def digest_on() -> None:
        while not is_over.is_set():
            digest()

    other = threading.Thread(target=digest_on)
    other.start()
    try:
        assert any(found.overlap_s > 0.4 * found.cpu_s for found in (ran(digest) for _ in range(1000)))
    finally:
        is_over.set()
        other.join()
