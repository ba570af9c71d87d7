"""The load of the storm over chats: clients that stream answers, and know each token of them."""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

from dyorc import Client
from dyorc.client import Retries
from dyorc.errors import DyOrcError
from tests.chaos.chats import WORKFLOWS, Chat
from tests.chaos.counted_clients import CountedClients
from tests.deadlines import TIMEOUT_S

_RETRY_S = 0.05
_ONCE = Retries(max_attempts=1)
"""What fails is seen, not sent again by the library."""


class ChatsLoad(CountedClients):
    """Runs clients that ask while entered.

    Args:
        excuses: Whether a request that began then (`time.monotonic`) and has just failed may have met a killed server. Its client
            asks again.

    Attributes:
        right: Right answers so far, by workflow.
        num_parts: Their parts.
        ties: Answers that differ where two tokens are equally likely within rounding.
        wrong: Each wrong answer: wrong, short, long or doubled.
        violations: Each request that failed although nothing excuses it.
        cut: Requests that failed with their server: after their first part, and before.
        slowest_s: The longest that an answer took.
    """

    def __init__(
        self, url: str, chats: Sequence[Chat], num_clients: int, seed: int, excuses: Callable[[float], bool] = lambda _: False
    ) -> None:
        super().__init__(num_clients, seed)
        self._url = url
        self._chats = chats
        self._excuses = excuses
        self.right: Counter[str] = Counter()
        self.num_parts = 0
        self.ties: list[str] = []
        self.wrong: list[str] = []
        self.violations: list[str] = []
        self.cut: Counter[str] = Counter()
        self.slowest_s = 0.0

    @property
    def faults(self) -> list[str]:
        """All that must not have happened so far."""
        return [*self.wrong, *self.violations]

    def wait_for_answers(self, num_answers: int, timeout_s: float = TIMEOUT_S) -> bool:
        """Waits until there are so many more answers, of any clients. Returns whether they came in time."""
        with self._changed:
            wanted = sum(self._num_answers) + num_answers
            return self._changed.wait_for(lambda: sum(self._num_answers) >= wanted or bool(self.faults), timeout_s)

    def wait_for_all_at_least(self, num_answers: int, timeout_s: float) -> bool:
        """Waits until every client has so many answers, or something is wrong. Returns whether that came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: min(self._num_answers) >= num_answers or bool(self.faults), timeout_s)

    def _main(self, at: int, chance: random.Random) -> None:
        with Client(self._url, timeout_s=TIMEOUT_S, retries=_ONCE, max_connections=1) as client:
            while not self.is_over.is_set():
                workflow, chat = chance.choice(WORKFLOWS), chance.choice(self._chats)
                while not self._is_answered(at, client, workflow, chat) and not self.is_over.is_set():
                    time.sleep(_RETRY_S)

    def _is_answered(self, at: int, client: Client, workflow: str, chat: Chat) -> bool:
        since_s = time.monotonic()
        parts: list[bytes] = []
        try:
            if workflow == "best_of":
                parts.append(client.infer(workflow, question=chat.question).item())
            else:
                for part in client.stream(workflow, question=chat.question):
                    parts.append(part.item())
        except DyOrcError as error:
            is_excused = self._excuses(since_s)
            with self._changed:
                if is_excused:
                    self.cut["after its first part" if parts else "before"] += 1
                else:
                    took_s = time.monotonic() - since_s
                    self.violations.append(f"client {at}, {workflow}, {len(parts)} parts, {took_s:.2f} s: {error!r}")
                    self._changed.notify_all()
            return False
        fault = chat.fault_of(workflow, parts)
        with self._changed:
            if not fault:
                self.right[workflow] += 1
                self.num_parts += len(parts)
            else:
                (self.ties if chat.may_differ(workflow) else self.wrong).append(f"client {at}: {fault}")
            self.slowest_s = max(self.slowest_s, time.monotonic() - since_s)
            self._num_answers[at] += 1
            self._changed.notify_all()
        return True
