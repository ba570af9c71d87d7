"""Decides whether a program's batches run on the event loop or on the program's own thread. Pure.

Waking a thread takes longer than a small program does, and the thread then competes with the loop for the interpreter. But while
a batch runs on the loop, nothing else does. So short programs run there, and each batch is measured.

Three times are measured, because each misleads in its own way. The wall time on a thread includes waiting for the interpreter's
lock, so under load every program looks long. The processor time leaves out sleeping, and waiting for a device. Neither shows what
a thread is worth; that is the *overlap*: for how long other threads of the process computed at the same time. Hence:

* A program moves from its thread to the loop if its processor time is short at all sizes that occur, and its wall time was not
  much longer at least once. Whether the move was right shows on the loop.
* It also moves if it is longer, up to `_STRETCH` times the limit, computes for most of its time, and overlaps with little: then
  it and the loop only take turns, which costs both more than waiting for each other. The loop cannot show whether there would be
  more overlap by now, so such a program returns to its thread for a while every `_MAX_STAY` batches.
* Both only if it computes. A program that waits for anything else, such as a socket, a lock or a time, may wait for seconds some
  day. One batch that seems to compute proves nothing: other threads may have computed for as long as it waited, or its thread may
  have collected garbage. Under load, waiting for the interpreter hides short waits; on the loop they show, and the program
  returns for long.
* A program moves from the loop to its thread at once if one batch took too much processor time, or much too long; also if batches
  repeatedly took too long. Time in which the system ran other processes is not counted: a thread would have lost it as well.

Each return makes the next attempt rarer, unless it came late: the first batch of a new size is often slow.
"""

from collections import deque
from statistics import median

_NUM_RECENT = 8
"""How many batches of each size count."""
_HYSTERESIS = 0.5
"""A program must be below this part of the limit to move to the loop."""
_PATIENCE = 4.0
"""A single batch on the loop may take this many times the limit if it did not compute: the system may have run something else."""
_MAX_LONG = 2
"""With this many recent batches over the limit, a program leaves the loop."""
_NUM_REMEMBERED = 256
"""After this many batches, a size that did not occur again, or a failed attempt, is forgotten."""
_MAX_ATTEMPT_AFTER = 1024
_STRETCH = 4.0
"""A program that gains nothing from a thread may take this many times the limit."""
_NUM_COMPARED = 32
"""How many batches on the thread decide whether it gains anything."""
_MIN_OVERLAP = 0.4
"""A thread is worth its cost if others compute during this part of its computing time. Measured: 0.1 to 0.3 where small torch
programs and the loop took turns, 0.5 to 0.8 where larger ones really ran in parallel."""
_MAX_WAITING = 0.5
"""A program that waits this much of its computing time for anything but the interpreter, such as a device, needs a thread."""
_MIN_COMPUTING = 2
"""So many recent batches have to have waited less than that before a program moves to the loop."""
_NEGLIGIBLE_WAIT_S = 0.000_05
"""Shorter waits mean nothing: a lock within a library, a page fault."""
_MAX_STAY = 16_384
"""Returning to the thread this rarely shows in no percentile."""


class InlineRule:
    """Decides for one program, from the batches that it has run. A new program is not inline: its first batches are slow.

    Args:
        limit_s: A batch on the loop should take less than this.
        can_stretch: Whether it may take longer if a thread gains nothing. Not for a program with its own device: it computes
            nothing while the device does, though it may look busy.
        may_move: Whether it may run on the loop at all.

    Attributes:
        is_inline: Whether the next batch should run on the loop.
    """

    def __init__(self, limit_s: float, *, can_stretch: bool = True, may_move: bool = True) -> None:
        self._limit_s = limit_s
        self._can_stretch = can_stretch
        self._may_move = may_move
        self._stretch = 1.0
        self.is_inline = False
        self._recent: dict[int, deque[float]] = {}
        self._last_seen: dict[int, int] = {}
        self._walls: deque[float] = deque(maxlen=_NUM_RECENT)
        self._waits: deque[bool] = deque(maxlen=_NUM_RECENT)
        self._compared: deque[tuple[float, float]] = deque(maxlen=_NUM_COMPARED)
        self._num_seen = 0
        self._num_since_move = 0
        self._attempt_after = _NUM_RECENT

    def observe(self, size: int, wall_s: float, cpu_s: float, overlap_s: float = 0.0) -> None:
        """Adds a batch: how many calls it had, how long it took, for how long its thread computed, and for how much of that time
        other threads did, too."""
        self._num_seen += 1
        self._num_since_move += 1
        self._walls.append(wall_s)
        self._waits.append(wall_s - cpu_s > max(_MAX_WAITING * cpu_s, _NEGLIGIBLE_WAIT_S))
        if self.is_inline:
            self._observe_inline(wall_s, cpu_s)
        else:
            least_s = max(cpu_s, 1e-9)
            self._compared.append((overlap_s / least_s, wall_s / least_s))
            self._observe_on_thread(size, cpu_s)

    def stay(self) -> None:
        """Keeps the program on its thread for good."""
        self._may_move = False
        if self.is_inline:
            self._move(is_inline=False)

    def _observe_inline(self, wall_s: float, cpu_s: float) -> None:
        if 2 * sum(self._waits) > _NUM_RECENT:
            self._attempt_after = _MAX_ATTEMPT_AFTER
            self._move(is_inline=False)
            return
        limit_s = self._stretch * self._limit_s
        if wall_s <= limit_s:
            if self._num_since_move == _NUM_REMEMBERED:
                self._attempt_after = _NUM_RECENT  # the move was right; one long batch among so many does no harm
            if self._stretch > 1 and self._num_since_move >= _MAX_STAY:
                self._move(is_inline=False)
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
        if not self._may_move or self._num_since_move < self._attempt_after or self._waits.count(False) < _MIN_COMPUTING:
            return
        usual_s = self._usual_s()
        if usual_s <= _HYSTERESIS * self._limit_s and min(self._walls) <= _PATIENCE * self._limit_s:
            self._move(is_inline=True)
        elif self._can_stretch and usual_s <= _STRETCH * self._limit_s and self._gains_nothing():
            self._move(is_inline=True, stretch=_STRETCH)

    def _usual_s(self) -> float:
        """Returns the longest processor time of recent batches of all sizes, leaving out the longest one of each size."""
        for size_class, last in list(self._last_seen.items()):
            if self._num_seen - last > _NUM_REMEMBERED:
                del self._recent[size_class], self._last_seen[size_class]
        return max(sorted(recent)[max(0, len(recent) - 2)] for recent in self._recent.values())

    def _gains_nothing(self) -> bool:
        """Returns whether the program computes for most of its time, and hardly anything else does meanwhile."""
        if len(self._compared) < _NUM_COMPARED:
            return False
        overlaps, walls = zip(*self._compared, strict=True)
        return median(overlaps) < _MIN_OVERLAP and median(walls) < 1 + _MAX_WAITING

    def _move(self, *, is_inline: bool, stretch: float = 1.0) -> None:
        self.is_inline = is_inline
        self._stretch = stretch
        self._num_since_move = 0
        self._recent.clear()
        self._last_seen.clear()
        self._walls.clear()
        self._waits.clear()
        self._compared.clear()
