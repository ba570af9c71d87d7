"""A server with two examples, and a light load on it, as a page about traffic needs."""

import contextlib
import importlib
import random
import threading
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import dyorc
from dyorc.testing import ServerProcess
from tests.server_process import serving

_EXAMPLES = Path(__file__).parents[1] / "examples"
TARGETS = (
    f"{_EXAMPLES / 'guarded' / 'workflow.py'}:guarded",
    f"{_EXAMPLES / 'guarded' / 'workflow.py'}:guarded_story",
    f"{_EXAMPLES / 'digits' / 'workflow.py'}:classify",
)
_NUM_MESSAGES = 300


@contextlib.contextmanager
def examples(*more: str) -> Generator[ServerProcess]:
    """Serves the guarded generator and the digits in one process, and more targets beside them."""
    with serving([*TARGETS, *more], in_process=True) as server:
        yield server


class Load:
    """Requests of both examples, from a few threads.

    Args:
        harmful_ratio: Of the messages to the guarded generator.
    """

    def __init__(self, server: ServerProcess, harmful_ratio: float = 0.25) -> None:
        self._url = server.url
        self._texts = list(_messages(harmful_ratio))
        self._over = threading.Event()

    def send(self, number: int, seed: int = 0) -> None:
        """Sends so many requests, one after another: four of five are messages, one is an image."""
        draw = random.Random(seed)
        with dyorc.Client(self._url) as client:
            for _ in range(number):
                if self._over.is_set():
                    return
                self._send_one(client, draw)

    def _send_one(self, client: dyorc.Client, draw: random.Random) -> None:
        if draw.random() < 0.8:
            client.infer("guarded", text=draw.choice(self._texts))
        else:
            image = np.array([draw.random() for _ in range(64)], np.float32).reshape(1, 8, 8)
            client.infer("classify", image=image)

    def send_from(self, num_threads: int, number: int) -> None:
        """Sends so many requests from each of several threads."""
        with self.running(num_threads, number, is_ended=False):
            pass

    @contextlib.contextmanager
    def running(self, num_threads: int, number: int, *, is_ended: bool = True) -> Generator[None]:
        """Sends at most so many requests from each of several threads while entered."""
        self._over.clear()
        threads = [threading.Thread(target=self.send, args=[number, seed]) for seed in range(num_threads)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            if is_ended:
                self._over.set()
            for thread in threads:
                thread.join()


def _messages(harmful_ratio: float) -> Iterator[Sequence[int]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(_EXAMPLES / "guarded"))
        texts = importlib.import_module("guarded_texts")
        for message in texts.draw_messages(_NUM_MESSAGES, harmful_ratio, seed=4, is_held_out=True):
            yield texts.encode(message.text)
