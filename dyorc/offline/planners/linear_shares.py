"""Linear programs over the shares of ranks: what HAP's and HiDup's with uneven shares have in common.

min   sum of weighted variables
s.t.  rows that a planner adds
      M >= B_j,  sum_j B_j = 1,  B >= 0         B_j: the share of rank j, M: the largest
"""

from typing import Any

_NONE = 1e-9
"""A smaller share is none."""


class LinearShares:
    """Collects variables and rows. The first variables are the shares, then comes the largest of them."""

    def __init__(self, num_ranks: int, weight_of_largest: float) -> None:
        self.num_ranks = num_ranks
        self.largest = num_ranks
        self._objective = [0.0] * num_ranks + [weight_of_largest]
        self._rows: list[tuple[float, tuple[tuple[int, float], ...]]] = []
        for rank in range(num_ranks):
            self.at_most(0.0, (rank, 1.0), (self.largest, -1.0))

    def variable(self, weight: float = 1.0) -> int:
        """Adds a variable that is not negative, and returns its number."""
        self._objective.append(weight)
        return len(self._objective) - 1

    def at_most(self, bound: float, *terms: tuple[int, float]) -> None:
        """Adds a row: the sum of variables times their factors is at most a bound."""
        self._rows.append((bound, terms))

    def solve(self) -> tuple[tuple[float, ...], float] | None:
        """Returns the shares and the minimum; None if no shares satisfy all rows."""
        from scipy.optimize import linprog

        num = len(self._objective)
        rows = [[0.0] * num for _ in self._rows]
        for row, (_, terms) in zip(rows, self._rows, strict=True):
            for variable, factor in terms:
                row[variable] += factor
        total = [[1.0] * self.num_ranks + [0.0] * (num - self.num_ranks)]
        bounds = [bound for bound, _ in self._rows]
        solved: Any = linprog(self._objective, rows, bounds, total, [1.0], bounds=(0.0, None), method="highs")
        if solved.status != 0:
            return None
        shares = [0.0 if share < _NONE else float(share) for share in solved.x[: self.num_ranks]]
        return tuple(share / sum(shares) for share in shares), float(solved.fun)
