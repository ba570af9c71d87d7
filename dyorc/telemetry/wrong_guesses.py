"""Batches in which replicas ran nothing but guesses that turned out wrong: what waited for those replicas waited in vain."""

from collections import deque
from collections.abc import Iterable

from dyorc.engine.request_trace import BatchTrace
from dyorc.telemetry.record import RequestRecord

_MAX_BATCHES = 256
"""Of one program."""


class WrongGuesses:
    """The last of them, by program. For the event loop's thread."""

    def __init__(self) -> None:
        self._batches: dict[str, deque[BatchTrace]] = {}

    def add(self, record: RequestRecord) -> None:
        """Adds those of a request that has ended. They may still be running: their traces are filled in later."""
        if record.story is None:
            return
        for call in record.story.calls:
            if call.outcome == "squashed":
                for batch in call.batches:
                    if batch.num_guesses == batch.size:
                        self._batches.setdefault(call.program, deque(maxlen=_MAX_BATCHES)).append(batch)

    def batches_on(self, program: str, replica_id: str) -> Iterable[BatchTrace]:
        """Returns those that a replica of a program ran. A batch of several requests may come several times."""
        return [batch for batch in self._batches.get(program, ()) if batch.replica_id == replica_id]
