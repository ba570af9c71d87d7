"""Threads that send requests for as long as a test wants."""

import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self


class ClientThreads:
    """Runs jobs, each on a thread of its own, while entered. Leaving it raises what a job has raised.

    Args:
        jobs: Each looks at `is_over` now and then, and ends when that is set.
    """

    def __init__(self, jobs: Iterable[Callable[[], object]]) -> None:
        self.is_over = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(job,)) for job in jobs]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.is_over.set()
        for thread in self._threads:
            thread.join()
        if self._errors and error is None:
            raise self._errors[0]

    def _run(self, job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:
            self._errors.append(error)
