"""Clients of a storm, a thread for each, and how many answers each of them has had."""

import random
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class ClientThreads(ABC):
    """Runs clients while entered. Each draws what it sends from a sequence of its own."""

    def __init__(self, num_clients: int, seed: int) -> None:
        self._changed = threading.Condition()
        self._is_over = False
        self._num_answers = [0] * num_clients
        self._threads = [
            threading.Thread(target=self._main, args=(at, random.Random(seed * 1000 + at)), name=f"storm-client-{at}")
            for at in range(num_clients)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join()

    @abstractmethod
    def _main(self, at: int, chance: random.Random) -> None:
        """Sends, as client `at`, until `_is_over`."""
