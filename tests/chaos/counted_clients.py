"""Clients of a storm, a thread for each, and how many answers each of them has had."""

import random
import threading
from abc import ABC, abstractmethod
from functools import partial

from tests.client_threads import ClientThreads


class CountedClients(ClientThreads, ABC):
    """Runs clients while entered. Each draws what it sends from a sequence of its own."""

    def __init__(self, num_clients: int, seed: int) -> None:
        super().__init__(partial(self._main, at, random.Random(seed * 1000 + at)) for at in range(num_clients))
        self._changed = threading.Condition()
        self._num_answers = [0] * num_clients

    @abstractmethod
    def _main(self, at: int, chance: random.Random) -> None:
        """Sends, as client `at`, until `is_over` is set."""
