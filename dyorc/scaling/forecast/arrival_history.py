"""What has arrived, bin by bin: the last minutes finely, the last weeks coarsely."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LENGTH = 1024
"""Bins kept of each width."""
FACTOR = 8
NUM_WIDTHS = 5
"""With bins of half a second, the widest are 34 minutes long and reach back 24 days."""
UNKNOWN = -1.0
"""A bin in which arrivals were not counted: before the start, or while the server was down."""


class _Ring:
    """Bins of one width. The newest lies at the end; the array is twice as long, so that it is copied rarely.

    Attributes:
        width: Of a bin, in bins of the finest width.
        lag: Fine bins that have passed since the newest bin here was full.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.lag = 0
        self.num_known = 0
        self._cells = np.zeros(2 * LENGTH)
        self._end = LENGTH
        self._sum = 0.0

    def add(self, count: float) -> None:
        """Takes in a fine bin."""
        self.lag += 1
        self._sum = UNKNOWN if count < 0 or self._sum < 0 else self._sum + count
        if self.lag < self.width:
            return
        full, self._sum, self.lag = self._sum, 0.0, 0
        if self._end == 2 * LENGTH:
            self._cells[:LENGTH] = self._cells[LENGTH:]
            self._end = LENGTH
        self._cells[self._end] = full
        self._end += 1
        self.num_known = min(self.num_known + 1, LENGTH)

    def restore(self, values: Sequence[float]) -> None:
        """Puts bins there, the newest last."""
        self.num_known = len(values)
        self._cells[self._end - len(values) : self._end] = values
        self._sum = UNKNOWN if self.lag else 0.0

    @property
    def values(self) -> NDArray[np.float64]:
        """The bins, the newest last."""
        return self._cells[self._end - self.num_known : self._end]

    def since(self, oldest: float, lengths: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Returns the counts from an age on, over each length, all in bins of this width; None where most is unknown."""
        first, last = int(np.floor(-oldest)), min(int(np.ceil(float(lengths.max()) - oldest)), 0)
        cells = self._cells[self._end + first : self._end + last]
        known = cells >= 0
        num_known = np.count_nonzero(known)
        if not len(cells) or num_known < 0.5 * len(cells):
            return None
        if num_known < len(cells):
            cells = np.where(known, cells, cells[known].mean())
        sums = np.concatenate(([0.0], np.cumsum(cells)))
        start = -oldest - first
        reached = np.interp(start + np.append(lengths, 0.0), np.arange(len(sums)), sums)
        return reached[:-1] - reached[-1]


class ArrivalHistory:
    """Counts of the past, at several widths.

    Cost: constant for each bin; 80 kB.
    """

    def __init__(self) -> None:
        self.rings = [_Ring(FACTOR**power) for power in range(NUM_WIDTHS)]

    def add(self, count: float) -> None:
        """Takes in the next bin."""
        for ring in self.rings:
            ring.add(count)

    def since(self, oldest: float, lengths: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Returns how many came from an age on, in fine bins, over each of the lengths that follow; None if that is not known."""
        for ring in self.rings:
            start = (oldest - ring.lag) / ring.width
            if 0 < start <= ring.num_known:
                return ring.since(start, lengths / ring.width)
        return None

    def to_state(self) -> list[list[float]]:
        """Returns the counts of each width, the newest last."""
        return [[round(value, 3) for value in ring.values.tolist()] for ring in self.rings]

    @classmethod
    def from_state(cls, state: Sequence[Sequence[float]], num_away: int) -> "ArrivalHistory":
        """Returns what was exported, `num_away` bins later."""
        history = cls()
        for ring, values in zip(history.rings, state, strict=False):
            away, ring.lag = divmod(num_away, ring.width)
            kept = [*values[-LENGTH:], *([UNKNOWN] * min(away, LENGTH))][-LENGTH:]
            ring.restore(kept)
        return history
