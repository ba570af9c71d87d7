"""Records what happens to each request, and keeps the answers until the measurement is over."""

import json
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from loadgen.targets.base import RawAnswer

UNANSWERED, CORRECT, WRONG, FIRST_ERROR = 0, 1, 2, 16
"""Outcomes. Numbers from `FIRST_ERROR` on stand for error texts, in the order in which they were first seen."""
_MAX_ERRORS = 200
MAX_KEPT_BYTES = 256 * 2**20
"""The limit for answers that wait to be checked. Beyond it, answers are checked at once."""


@dataclass(frozen=True, slots=True)
class Records:
    """All requests of one worker, as arrays of one length; times on the monotonic clock.

    Attributes:
        index: Each request's index in the pool.
        sent_ns: When it was sent; 0 if it never was.
        done_ns: When it was answered; 0 if it was not.
        outcome: How it ended; see above.
        errors: The texts of outcomes from `FIRST_ERROR` on.
        ended_ns: When the wait for answers ended.
        wrong: The first wrong answer, in words.
        part_of, part_ns: For each part of a streamed answer, the number of its request and when it came; in the order in which
            parts came.
        start_ns: When the load began.
        cpu_ratio: CPU time of the worker during the load, in cores.
    """

    index: np.ndarray[Any, np.dtype[np.int64]]
    planned_ns: np.ndarray[Any, np.dtype[np.int64]]
    sent_ns: np.ndarray[Any, np.dtype[np.int64]]
    done_ns: np.ndarray[Any, np.dtype[np.int64]]
    outcome: np.ndarray[Any, np.dtype[np.int64]]
    errors: list[str]
    ended_ns: int
    wrong: str
    part_of: np.ndarray[Any, np.dtype[np.int64]] = field(default_factory=lambda: np.zeros(0, np.int64))
    part_ns: np.ndarray[Any, np.dtype[np.int64]] = field(default_factory=lambda: np.zeros(0, np.int64))
    start_ns: int = 0
    cpu_ratio: float = 0.0

    def save(self, path: Path) -> None:
        """Writes an .npz file without pickled objects."""
        fields = asdict(self)
        arrays = {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
        about = {name: value for name, value in fields.items() if name not in arrays}
        with path.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays, about=np.frombuffer(json.dumps(about).encode(), np.uint8))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads what `save` wrote."""
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files if name != "about"}
            return cls(**arrays, **json.loads(stored["about"].tobytes()))


class Recorder:
    """Requests write to it directly, so it does as little as possible.

    Equal answers to the same request of the pool are kept once, and judged at the end.

    Args:
        complaint: Returns what is wrong with an answer to a request of the pool; empty if nothing is. None if answers are not
            checked.
        num_pool: How many requests the pool has.
        max_kept_bytes: The limit for kept answers.
    """

    def __init__(
        self, complaint: Callable[[int, RawAnswer], str] | None, num_pool: int, max_kept_bytes: int = MAX_KEPT_BYTES
    ) -> None:
        self._complaint = complaint
        self._room_bytes = max_kept_bytes
        self.index, self.planned_ns, self.sent_ns, self.done_ns = array("q"), array("q"), array("q"), array("q")
        self._part_of, self._part_ns = array("q"), array("q")
        self._outcome = array("B")
        self._answer = array("q")  # the number of each request's answer, -1 if there is none
        self._errors: dict[str, int] = {}
        self._bodies: list[tuple[int, RawAnswer] | None] = []  # by number; None once it is judged
        self._verdicts: list[bool] = []
        self._known: list[dict[bytes, int]] = [{} for _ in range(num_pool)]
        self._last: list[tuple[bytes, int]] = [(b"", -1)] * num_pool
        self._wrong = ""
        self.num_sent = self.num_done = self.num_failed = 0
        self.recent: list[int] = []
        """Requests that ended since the progress was last shown."""

    def plan(self, index: np.ndarray[Any, Any], planned_ns: np.ndarray[Any, Any]) -> None:
        """Makes room for requests that will be sent."""
        num = len(index)
        self.index.frombytes(index.astype(np.int64).tobytes())
        self.planned_ns.frombytes(planned_ns.astype(np.int64).tobytes())
        for times in (self.sent_ns, self.done_ns):
            times.frombytes(bytes(8 * num))
        self._answer.frombytes(np.full(num, -1, np.int64).tobytes())
        self._outcome.frombytes(bytes(num))

    def add(self, index: int, planned_ns: int) -> int:
        """Makes room for one request and returns its number."""
        number = len(self.index)
        self.index.append(index)
        self.planned_ns.append(planned_ns)
        self.sent_ns.append(0)
        self.done_ns.append(0)
        self._answer.append(-1)
        self._outcome.append(UNANSWERED)
        return number

    def mark_sent(self, number: int, now_ns: int) -> None:
        """Notes that a request is sent."""
        self.sent_ns[number] = now_ns
        self.num_sent += 1

    def mark_part(self, number: int, now_ns: int) -> None:
        """Notes a part of an answer."""
        self._part_of.append(number)
        self._part_ns.append(now_ns)

    def mark_answered(self, number: int, now_ns: int, answer: RawAnswer) -> None:
        """Notes an answer."""
        self.done_ns[number] = now_ns
        self._outcome[number] = CORRECT  # until it has been judged
        self.num_done += 1
        self.recent.append(number)
        if self._complaint is not None:
            index = self.index[number]
            body, known = self._last[index]  # comparing is faster than hashing
            self._answer[number] = known if answer == body and known >= 0 else self._keep(index, answer)

    def mark_failed(self, number: int, now_ns: int, text: str) -> None:
        """Notes an error."""
        self.done_ns[number] = now_ns
        self.num_done += 1
        self.num_failed += 1
        self.recent.append(number)
        if len(self._errors) >= _MAX_ERRORS and text not in self._errors:
            text = "other errors"
        self._outcome[number] = self._errors.setdefault(text, FIRST_ERROR + len(self._errors))

    def _keep(self, index: int, answer: RawAnswer) -> int:
        is_bytes = isinstance(answer, bytes)
        if is_bytes and (known := self._known[index].get(answer)) is not None:
            self._last[index] = (answer, known)
            return known
        number = len(self._bodies)
        size = len(answer) if is_bytes else sum(array.nbytes for array in answer.values())
        if size > self._room_bytes:
            self._bodies.append(None)
            self._verdicts.append(self._judge(index, answer))
            return number
        self._room_bytes -= size
        self._bodies.append((index, answer))
        self._verdicts.append(True)
        if is_bytes:
            self._known[index][answer] = number
            self._last[index] = (answer, number)
        return number

    def _judge(self, index: int, answer: RawAnswer) -> bool:
        assert self._complaint is not None
        complaint = self._complaint(index, answer)
        if complaint and not self._wrong:
            self._wrong = complaint
        return not complaint

    def finish(self, ended_ns: int) -> Records:
        """Judges the kept answers. Call it once nothing is measured any more."""
        for number, kept in enumerate(self._bodies):
            if kept is not None:
                self._verdicts[number] = self._judge(*kept)
                self._bodies[number] = None
        outcome = np.frombuffer(self._outcome, np.uint8).astype(np.int64)
        answers = np.frombuffer(self._answer, np.int64)
        verdicts = np.array([*self._verdicts, True])  # the last entry stands for -1
        outcome[~verdicts[answers]] = WRONG
        return Records(
            index=np.frombuffer(self.index, np.int64),
            planned_ns=np.frombuffer(self.planned_ns, np.int64),
            sent_ns=np.frombuffer(self.sent_ns, np.int64),
            done_ns=np.frombuffer(self.done_ns, np.int64),
            outcome=outcome,
            errors=list(self._errors),
            ended_ns=ended_ns,
            wrong=self._wrong,
            part_of=np.frombuffer(self._part_of, np.int64),
            part_ns=np.frombuffer(self._part_ns, np.int64),
        )
