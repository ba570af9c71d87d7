"""Operations as their clients saw them, and a recorder for many clients at once."""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec


class Operation(msgspec.Struct, kw_only=True, eq=False):
    """One operation on one subject.

    Attributes:
        client: Its number; a client does one operation at a time.
        kind: What was asked, such as ``submit``.
        subject: What it was asked of. Subjects have nothing to do with each other.
        argument: What was given.
        outcome: What came back; None if nothing did, so that nobody knows whether it happened, or still will.
        began_s: When it was sent, by the monotonic clock.
        ended_s: When the answer was there; infinite without an answer.
    """

    client: int
    kind: str
    subject: str
    argument: Any = None
    outcome: Any = None
    began_s: float = 0.0
    ended_s: float = math.inf

    def __str__(self) -> str:
        end = "no answer" if self.outcome is None else f"{self.outcome!r} at {self.ended_s:.3f}"
        return f"client {self.client} at {self.began_s:.3f}: {self.kind} {self.subject} {self.argument!r} -> {end}"


class NotSentError(Exception):
    """An operation certainly never reached a server."""


class History:
    """All operations of a run. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started_s = time.monotonic()
        self.operations: list[Operation] = []

    @contextmanager
    def recorded(self, client: int, kind: str, subject: str, argument: Any = None) -> Generator[Operation]:
        """Records an operation. The block sets its outcome, leaves it None if no answer came, or raises NotSentError."""
        operation = Operation(client=client, kind=kind, subject=subject, argument=argument)
        operation.began_s = time.monotonic() - self._started_s
        with self._lock:
            self.operations.append(operation)
        try:
            yield operation
        except NotSentError:
            with self._lock:
                self.operations.remove(operation)
            return
        if operation.outcome is not None:
            operation.ended_s = time.monotonic() - self._started_s

    def by_subject(self) -> dict[str, list[Operation]]:
        return by_subject(self.operations)

    def write(self, path: Path) -> None:
        """Writes it, a line of JSON for each operation."""
        path.write_bytes(b"".join(msgspec.json.encode(operation) + b"\n" for operation in self.operations))


def by_subject(operations: Iterable[Operation]) -> dict[str, list[Operation]]:
    subjects: dict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        subjects[operation.subject].append(operation)
    return dict(subjects)
