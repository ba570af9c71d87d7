"""Whether a program's batches run on the event loop or on the program's own thread. Pure.

To wake a thread takes longer than a small program does, and it then competes with the loop for the interpreter. But while a batch
runs on the loop, nothing else does. So short programs run there, and how long a program takes is measured again and again.

Two times are measured, because each misleads in its own way. The wall time on a thread includes waiting for the interpreter's
lock, so under load every program looks long. The processor time leaves out sleeping, and waiting for a device. Hence:

* A thread's program moves to the loop if its processor time is short at all sizes that occur, and its wall time was not much
  longer at least once. Whether that was right shows there.
* The loop's program moves to its thread at once if one batch took too much processor time, or much too long; and if it repeatedly
  took too long. Time in which the system ran other processes instead is not counted: a thread would have lost it as well.

Each return makes the next attempt rarer, unless it took long to come: the first batch of a new size is often slow.
"""

from collections import deque

_NUM_RECENT = 8
"""Batches of one size that count."""
_HYSTERESIS = 0.5
"""A program has to be this much shorter than the limit to move to the loop."""
_PATIENCE = 4.0
"""A single batch on the loop may take this many times the limit if it did not compute: perhaps the system ran somebody else."""
_MAX_LONG = 2
"""Recent batches on the loop that may not be over the limit all together."""
_NUM_REMEMBERED = 256
"""What did not occur for so many batches is forgotten: a size, or that an attempt failed."""
_MAX_ATTEMPT_AFTER = 1024


class InlineRule:
    """Decides for one program, from the batches that it has run. A new program is not inline: its first batches are slow.

    Args:
        limit_s: A batch on the loop should take less than this.

    Attributes:
        is_inline: The decision.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.is_inline = False
        self._recent: dict[int, deque[float]] = {}
        self._last_seen: dict[int, int] = {}
        self._walls: deque[float] = deque(maxlen=_NUM_RECENT)
        self._num_seen = 0
        self._num_since_move = 0
        self._attempt_after = _NUM_RECENT

    def observe(self, size: int, wall_s: float, cpu_s: float) -> None:
        """Takes in a batch: how many calls it had, how long it took, and for how long its thread computed."""
        self._num_seen += 1
        self._num_since_move += 1
        self._walls.append(wall_s)
        if self.is_inline:
            self._observe_inline(wall_s, cpu_s)
        else:
            self._observe_on_thread(size, cpu_s)

    def _observe_inline(self, wall_s: float, cpu_s: float) -> None:
        limit_s = self._limit_s
        if wall_s <= limit_s:
            if self._num_since_move == _NUM_REMEMBERED:
                self._attempt_after = _NUM_RECENT  # it was right; one long batch among so many does no harm
            return
        is_often_long = sum(each > limit_s for each in self._walls) >= _MAX_LONG
        if cpu_s > limit_s or wall_s > _PATIENCE * limit_s or is_often_long:
            self._attempt_after = min(2 * self._attempt_after, _MAX_ATTEMPT_AFTER)
            self._move(is_inline=False)

    def _observe_on_thread(self, size: int, cpu_s: float) -> None:
        size_class = size.bit_length()
        if size_class not in self._recent:
            self._recent[size_class] = deque(maxlen=_NUM_RECENT)
        self._recent[size_class].append(cpu_s)
        self._last_seen[size_class] = self._num_seen
        if self._num_since_move >= self._attempt_after and self._is_short():
            self._move(is_inline=True)

    def _is_short(self) -> bool:
        """Whether batches of all recent sizes take little, but for one each, and at least one came back soon."""
        for size_class, last in list(self._last_seen.items()):
            if self._num_seen - last > _NUM_REMEMBERED:
                del self._recent[size_class], self._last_seen[size_class]
        limit_s = _HYSTERESIS * self._limit_s
        usual_s = max(sorted(recent)[max(0, len(recent) - 2)] for recent in self._recent.values())
        return usual_s <= limit_s and min(self._walls) <= _PATIENCE * self._limit_s

    def _move(self, *, is_inline: bool) -> None:
        self.is_inline = is_inline
        self._num_since_move = 0
        self._recent.clear()
        self._last_seen.clear()
        self._walls.clear()
