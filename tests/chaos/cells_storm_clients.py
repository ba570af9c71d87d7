"""The load of the storm over cells: clients with one connection each, which know what every answer must be, and who answers."""

import random
import time
from collections import Counter
from typing import Any

import httpx
import numpy as np

from tests import oip
from tests.chaos.counted_clients import CountedClients
from tests.deadlines import TIMEOUT_S
from tests.workflows import poisoned

_SIZES = (16, 1024, 32_768)
"""Words of an input, of 8 bytes each."""
_RETRY_S = 0.01
_MAX_REST_S = 0.04
"""Between two requests of a client, or the machine would have no time left for cells that start."""
_MODEL = "/v2/models/signed/infer"
_LINGER_S = 0.5
"""For so long after the end of a process, a connection that the kernel gave to it may still turn out to be cut."""


class Struck:
    """Which processes the storm has struck, and since when until when they do harm. Any thread."""

    def __init__(self) -> None:
        self._times: dict[int, tuple[float, float]] = {}

    def begin(self, pid: int) -> None:
        """This one is struck now."""
        self._times[pid] = (time.monotonic(), float("inf"))

    def end(self, pid: int) -> None:
        """It is gone, or well again."""
        self._times[pid] = (self._times[pid][0], time.monotonic() + _LINGER_S)

    def excuses(self, pid: int | None, since_s: float) -> bool:
        """Returns whether a request that began then and has just failed may have met one, on its connection or on a new one."""
        if pid is not None:
            return pid in self._times
        return any(since_s <= until_s for _, until_s in list(self._times.values()))

    @property
    def num_at_work(self) -> int:
        """How many do harm now."""
        return sum(until_s > time.monotonic() for _, until_s in list(self._times.values()))


class Connection:
    """One connection, to whichever cell takes it.

    Attributes:
        pid: The process that answers on it; None before its first answer.
    """

    def __init__(self, url: str) -> None:
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
        self._client = httpx.Client(base_url=url, timeout=TIMEOUT_S, limits=limits, trust_env=False)
        self.pid: int | None = None

    def close(self) -> None:
        """Closes it."""
        self._client.close()

    def ask(self, words: Any) -> httpx.Response:
        """Sends a request.

        Raises:
            httpx.TransportError: If the connection is lost. The next request makes another.
        """
        body = oip.binary_body({"words": words}, parameters={"binary_data_output": True})
        try:
            return self._client.post(_MODEL, content=body.content, headers=dict(body.headers))
        except httpx.TransportError:
            self.pid = None
            raise

    def fault_of(self, words: Any, response: httpx.Response) -> str:
        """Returns what is wrong with an answer, empty if nothing is; and learns whose it is."""
        outputs = oip.read(response).outputs
        self.pid = int(outputs["pid"])
        total, right = int(outputs["total"]), poisoned.expected(words)
        return "" if total == right else f"{total}, expected {right}"


class CellsLoad(CountedClients):
    """Runs clients that send while entered.

    Attributes:
        num_right: Right answers so far.
        wrong: The details of each wrong answer; must stay empty.
        violations: Failures of requests on connections to cells that were not struck.
        cut: How many requests were lost with their cell: on a connection that had been answered before, and on a new one.
        took_s: How long requests took, on connections to cells that were not struck; while something was struck, and else.
    """

    def __init__(self, url: str, struck: Struck, num_clients: int, seed: int) -> None:
        super().__init__(num_clients, seed)
        self._url = url
        self._struck = struck
        self.wrong: list[str] = []
        self.violations: list[str] = []
        self.cut: Counter[str] = Counter()
        self.took_s: dict[str, list[float]] = {"beside": [], "calm": []}

    @property
    def num_right(self) -> int:
        """Right answers so far."""
        return sum(self._num_answers)

    def wait_for_all(self, timeout_s: float) -> bool:
        """Waits until every client has been answered twice from now on: the first request may have begun before."""
        with self._changed:
            wanted = [num + 2 for num in self._num_answers]

            def are_served() -> bool:
                return all(num >= least for num, least in zip(self._num_answers, wanted, strict=True))

            return self._changed.wait_for(are_served, timeout_s)

    def _main(self, at: int, chance: random.Random) -> None:
        connection = Connection(self._url)
        while not self.is_over.is_set():
            words = poisoned.made_words(poisoned.HARMLESS, chance.getrandbits(20), chance.choices(_SIZES, (6, 3, 1))[0])
            while not self.is_over.is_set() and not self._is_answered(at, connection, words):
                time.sleep(_RETRY_S)
            time.sleep(chance.uniform(0, _MAX_REST_S))
        connection.close()

    def _is_answered(self, at: int, connection: Connection, words: np.ndarray) -> bool:
        pid, since_s, num_before = connection.pid, time.monotonic(), self._struck.num_at_work
        try:
            response = connection.ask(words)
        except httpx.TransportError as error:
            took_s = time.monotonic() - since_s
            if not self._struck.excuses(pid, since_s):
                self._note(self.violations, f"client {at}, cell {pid}: {error!r} after {took_s:.2f} s")
            self.cut["new" if pid is None else "old"] += 1
            return False
        took_s = time.monotonic() - since_s
        if response.status_code != 200:
            self._note(self.violations, f"client {at}, cell {pid}: {response.status_code} {response.text} after {took_s:.2f} s")
            return False
        if fault := connection.fault_of(words, response):
            self._note(self.wrong, f"client {at}, cell {pid}: {fault}")
            return False
        if not self._struck.excuses(connection.pid, since_s):
            self.took_s["beside" if num_before else "calm"].append(took_s)
        with self._changed:
            self._num_answers[at] += 1
            self._changed.notify_all()
        return True

    def _note(self, where: list[str], text: str) -> None:
        with self._changed:
            where.append(text)
            self._changed.notify_all()
