"""Linear programs over the shares of ranks, for HAP and for HiDup with uneven shares.

min   sum of weighted variables
s.t.  rows that a planner adds
      M >= B_k,  sum_k n_k B_k = 1,  B >= 0       B_k: the share of each of the n_k ranks of kind k, M: the largest

Ranks whose rows are equal are one kind, with one variable. That loses nothing: if shares are best, so are those in which ranks of
a kind have the mean of what they have there, since the rows are linear and the same for all of them.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

_NONE = 1e-9
"""A smaller share is none."""


class LinearShares:
    """Collects variables and rows. The first variables are the shares of each kind of ranks, then comes the largest of them.

    Attributes:
        first: For each kind, its first rank.
        largest: The variable that is the largest share.
    """

    def __init__(self, of_ranks: Sequence[Hashable], weight_of_largest: float) -> None:
        """Args:
        of_ranks: For each rank all coefficients of its rows: ranks with equal coefficients are one kind.
        weight_of_largest: What the largest share counts.
        """
        kinds: dict[Hashable, int] = {}
        self._kinds = [kinds.setdefault(each, len(kinds)) for each in of_ranks]
        self.first = [self._kinds.index(kind) for kind in range(len(kinds))]
        self.largest = len(kinds)
        self._objective = [0.0] * len(kinds) + [weight_of_largest]
        self._rows: list[tuple[float, tuple[tuple[int, float], ...]]] = []
        for kind in range(len(kinds)):
            self.at_most(0.0, (kind, 1.0), (self.largest, -1.0))

    def variable(self, weight: float = 1.0) -> int:
        """Adds a variable that is not negative, and returns its number."""
        self._objective.append(weight)
        return len(self._objective) - 1

    def at_most(self, bound: float, *terms: tuple[int, float]) -> None:
        """Adds a row: the sum of variables times their factors is at most a bound."""
        self._rows.append((bound, terms))

    def solve(self) -> tuple[tuple[float, ...], float] | None:
        """Returns the share of each rank, and the minimum; None if no shares satisfy all rows."""
        from scipy.optimize import linprog
        from scipy.sparse import coo_array

        entries = [(factor, row, variable) for row, (_, terms) in enumerate(self._rows) for variable, factor in terms]
        factors, rows, variables = zip(*entries, strict=True)
        num = len(self._objective)
        matrix: Any = coo_array((factors, (rows, variables)), shape=(len(self._rows), num)).tocsr()  # sums of equal places
        counts = Counter(self._kinds)
        total = [[float(counts[variable]) for variable in range(num)]]
        bounds = [bound for bound, _ in self._rows]
        solved: Any = linprog(self._objective, matrix, bounds, total, [1.0], bounds=(0.0, None), method="highs")
        if solved.status != 0:
            return None
        of_kinds = [0.0 if share < _NONE else float(share) for share in solved.x[: self.largest]]
        shares = [of_kinds[kind] for kind in self._kinds]
        total_share = sum(shares)
        return tuple(share / total_share for share in shares), float(solved.fun)
