"""Threads that send requests for as long as a test wants."""

import threading
from collections.abc import Callable, Iterable
from typing import Self


class ClientThreads:
    """Runs jobs, each on a thread of its own, while entered.

    Args:
        jobs: Each looks at `is_over` now and then, and ends when that is set.
    """

    def __init__(self, jobs: Iterable[Callable[[], object]]) -> None:
        self.is_over = threading.Event()
        self._threads = [threading.Thread(target=job) for job in jobs]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        for thread in self._threads:
            thread.join()
