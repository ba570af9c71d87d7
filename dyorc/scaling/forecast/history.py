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
"""Stands for a bin in which nobody counted: before the start, or while the server was down."""


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

    def between(self, oldest: float, newest: float) -> float | None:
        """Returns the count between two ages, in bins of this width; None where most is unknown."""
        first, last = int(np.floor(-oldest)), int(np.ceil(-newest))
        cells = self._cells[self._end + first : self._end + last]
        weights = np.ones(len(cells))
        weights[0] -= -oldest - first
        weights[-1] -= last + newest
        known = cells >= 0
        total = float(weights @ known)
        if total < 0.5 * (oldest - newest):
            return None
        return float((weights * known) @ cells) * (oldest - newest) / total


class History:
    """Counts of the past, at several widths.

    Cost: constant for each bin; 80 kB.
    """

    def __init__(self) -> None:
        self.rings = [_Ring(FACTOR**power) for power in range(NUM_WIDTHS)]

    def add(self, count: float) -> None:
        """Takes in the next bin."""
        for ring in self.rings:
            ring.add(count)

    def between(self, oldest: float, newest: float) -> float | None:
        """Returns how many came between two ages, in fine bins, where ``oldest > newest >= 0``; None if that is not known."""
        for ring in self.rings:
            start, end = (oldest - ring.lag) / ring.width, max((newest - ring.lag) / ring.width, 0.0)
            if end + 1e-9 < start <= ring.num_known:
                count = ring.between(start, end)
                return None if count is None else count * (oldest - newest) / ((start - end) * ring.width)
        return None

    def to_state(self) -> list[list[float]]:
        """Returns the counts of each width, the newest last."""
        return [[round(value, 3) for value in ring.values.tolist()] for ring in self.rings]

    @classmethod
    def from_state(cls, state: Sequence[Sequence[float]], num_away: int) -> "History":
        """Returns what was exported, `num_away` bins later."""
        history = cls()
        for ring, values in zip(history.rings, state, strict=False):
            away, ring.lag = divmod(num_away, ring.width)
            kept = [*values[-LENGTH:], *([UNKNOWN] * min(away, LENGTH))][-LENGTH:]
            ring.restore(kept)
        return history
