"""How many of something will come: a mean, and how sure it is."""

import math
from dataclasses import dataclass
from statistics import NormalDist

_MAX_SUMMED = 30.0
"""Up to this mean, quantiles are summed exactly; above it, a gamma distribution is close enough."""
_MIN_MEAN = 1e-9
_MIN_RATIO = 1e-6
"""Of variance to mean: a number that is certain is nearly so."""


@dataclass(frozen=True, slots=True)
class Count:
    """A number of arrivals or calls that is not known yet.

    More spread than its mean makes it negative-binomial, less makes it binomial, equal makes it Poisson.

    Attributes:
        mean: Expected number.
        variance: How far off that may be.
    """

    mean: float = 0.0
    variance: float = 0.0

    def __add__(self, other: "Count") -> "Count":
        """Returns the sum of two independent numbers."""
        return Count(self.mean + other.mean, self.variance + other.variance)

    def each(self, mean: float, square: float) -> "Count":
        """Returns the sum over this many things that count for `mean` each on average, and for `square` if squared."""
        return Count(self.mean * mean, self.mean * max(square - mean * mean, 0.0) + self.variance * mean * mean)

    @property
    def p_any(self) -> float:
        """Probability of at least one."""
        return 1.0 - math.exp(self._log_p_none()) if self.mean > _MIN_MEAN else 0.0

    def quantile(self, probability: float) -> float:
        """Returns a number that will not be exceeded with this probability.

        Source: the quantile of a gamma distribution by Wilson and Hilferty, PNAS 17 (1931).
        """
        if self.mean <= _MIN_MEAN:
            return 0.0
        if self.mean <= _MAX_SUMMED and self.variance <= 100 * self.mean:
            return float(self._summed(probability))
        shape = self.mean * self.mean / max(self.variance, _MIN_MEAN)
        root = 1 - 1 / (9 * shape) + NormalDist().inv_cdf(probability) / (3 * math.sqrt(shape))
        return self.mean * max(root, 0.0) ** 3

    @property
    def _ratio(self) -> float:
        return max(self.variance / self.mean, _MIN_RATIO)

    def _log_p_none(self) -> float:
        ratio = self._ratio
        if abs(ratio - 1) < 1e-6:
            return -self.mean
        if ratio > 1:
            return -self.mean / (ratio - 1) * math.log(ratio)
        return self.mean / (1 - ratio) * math.log(ratio)

    def _summed(self, probability: float) -> int:
        """Adds up probabilities by the recursion of Panjer: p(n + 1) = p(n) (a + b / (n + 1))."""
        ratio = self._ratio
        a = 1 - 1 / ratio
        b = self.mean / ratio - a
        p = reached = math.exp(self._log_p_none())
        number = 0
        limit = self.mean + 40 * math.sqrt(self.variance) + 20
        while reached < probability and number < limit:
            number += 1
            p *= a + b / number
            if p <= 0.0:
                break  # a binomial number has a largest value
            reached += p
        return number


NOTHING = Count()
