"""Everything that must happen at a given time, behind the one timer of the shell."""

import heapq
from collections.abc import Iterator
from enum import Enum, auto


class TimerKind(Enum):
    DEADLINE = auto()
    """A request's time is up; the key is its id."""
    EXECUTION = auto()
    """A batch runs for too long; the key is its id."""
    TURN = auto()
    """Something has to go on in the next turn, which is to come at once."""
    POOL = auto()
    """The next batch of a program may travel, or has been held for long enough; the key is the program's name."""


class Timer:
    """One entry. Cancelling marks it; it leaves the heap later."""

    __slots__ = ("at_ns", "is_cancelled", "key", "kind")

    def __init__(self, at_ns: int, kind: TimerKind, key: int | str) -> None:
        self.at_ns = at_ns
        self.kind = kind
        self.key = key
        self.is_cancelled = False


class Timers:
    """A heap of timers. Cancelled ones never outnumber the others by much, so it does not grow with the requests served."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []  # by time, then in the order in which they were set
        self._num_set = 0
        self._num_cancelled = 0
        self._announced_ns: int | None = None

    def __len__(self) -> int:
        return len(self._heap) - self._num_cancelled

    def __iter__(self) -> Iterator[Timer]:
        """Yields the timers that will fire, in no particular order."""
        return (timer for _, _, timer in self._heap if not timer.is_cancelled)

    def set(self, at_ns: int, kind: TimerKind, key: int | str) -> Timer:
        """Sets a new timer."""
        timer = Timer(at_ns, kind, key)
        self._num_set += 1
        heapq.heappush(self._heap, (at_ns, self._num_set, timer))
        return timer

    def cancel(self, timer: Timer) -> None:
        """Cancels a timer. Does nothing if it has fired or was cancelled before."""
        if timer.is_cancelled:
            return
        timer.is_cancelled = True
        self._num_cancelled += 1
        if self._num_cancelled > 64 and self._num_cancelled > len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if not entry[2].is_cancelled]
            heapq.heapify(self._heap)
            self._num_cancelled = 0

    def pop_due(self, now_ns: int) -> list[Timer]:
        """Removes and returns the timers whose time has come, the earliest first."""
        due: list[Timer] = []
        while self._heap and (self._heap[0][0] <= now_ns or self._heap[0][2].is_cancelled):
            timer = heapq.heappop(self._heap)[2]
            if timer.is_cancelled:
                self._num_cancelled -= 1
            else:
                timer.is_cancelled = True  # fired: a later cancel has nothing to do
                due.append(timer)
        if self._announced_ns is not None and self._announced_ns <= now_ns:
            self._announced_ns = None
        return due

    def forget_announcement(self) -> None:
        """Notes that the shell's timer has fired. It may be early: clocks of event loops are coarse. Then it is set again."""
        self._announced_ns = None

    def next_announcement(self) -> int | None:
        """Returns when the shell has to wake the engine, if it does not know yet."""
        if not self._heap:
            return None
        at_ns = self._heap[0][0]
        if self._announced_ns is not None and self._announced_ns <= at_ns:
            return None
        self._announced_ns = at_ns
        return at_ns
