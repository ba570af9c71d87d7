"""When requests arrive."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dyorc.errors import InvalidInputError
from dyorc.traffic.request_traces import read_trace

Times: TypeAlias = NDArray[np.int64]
_NS_PER_S = 1e9


class Arrivals(Protocol):
    """An arrival process."""

    def times_ns(self, num_requests: int, rate_rps: float, rng: np.random.Generator) -> Times:
        """Returns when the first `num_requests` arrive, ascending, in nanoseconds; `rate_rps` per second on average."""
        ...


@dataclass(frozen=True)
class Poisson:
    """Independent requests."""

    def times_ns(self, num_requests: int, rate_rps: float, rng: np.random.Generator) -> Times:
        return _running_sum(rng.standard_exponential(num_requests) / rate_rps)


@dataclass(frozen=True)
class Gamma:
    """Bursts: gaps from a gamma distribution.

    Attributes:
        cv: Coefficient of variation of the gaps: 1 is Poisson, 4 comes in bursts.
    """

    cv: float = 4.0

    def times_ns(self, num_requests: int, rate_rps: float, rng: np.random.Generator) -> Times:
        shape = 1 / self.cv**2
        return _running_sum(rng.standard_gamma(shape, num_requests) / (shape * rate_rps))


@dataclass(frozen=True)
class Constant:
    """Evenly spaced."""

    def times_ns(self, num_requests: int, rate_rps: float, rng: np.random.Generator) -> Times:
        return np.rint(np.arange(1, num_requests + 1) * (_NS_PER_S / rate_rps)).astype(np.int64)


@dataclass(frozen=True)
class Ramp:
    """Independent requests at a rate that grows linearly.

    Attributes:
        start_ratio: The rate at the start, as a fraction of the average; from 0 to 1. At the end it is ``2 - start_ratio``.
    """

    start_ratio: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.start_ratio <= 1:
            raise InvalidInputError(f"a ramp starts at {self.start_ratio} of its average rate, expected 0 to 1")

    def times_ns(self, num_requests: int, rate_rps: float, rng: np.random.Generator) -> Times:
        duration_s = num_requests / rate_rps
        even = np.cumsum(rng.standard_exponential(num_requests)) / num_requests
        return np.rint(self.warped(even) * (duration_s * _NS_PER_S)).astype(np.int64)

    def warped(self, even: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns when a ramp reaches as many arrivals as a constant rate by the times `even`; both as fractions of the whole."""
        rest = 1 - self.start_ratio
        # By time u, start_ratio u + rest u^2 arrivals have come; solved for u in a form that loses no digits.
        root = self.start_ratio + np.sqrt(self.start_ratio**2 + 4 * rest * even)
        return 2 * even / np.where(root == 0, 1, root)


@dataclass(frozen=True)
class Trace:
    """Recorded times, stretched to the rate asked for.

    Attributes:
        times_s: Timestamps in seconds, from any origin, ascending.
    """

    times_s: Sequence[float]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads the times of a trace (see `dyorc.traffic.request_traces`).

        Raises:
            InvalidInputError: If the file is no trace, or has no two different times.
        """
        times_s = [request.time_s for request in read_trace(path)]
        if times_s[0] == times_s[-1]:
            raise InvalidInputError(f"{path}: expected at least two timestamps in ascending order")
        return cls(tuple(times_s))

    @property
    def rate_rps(self) -> float:
        """Requests per second, as recorded."""
        return (len(self.times_s) - 1) / (self.times_s[-1] - self.times_s[0])

    def times_ns(self, num_requests: int, rate_rps: float, rng: np.random.Generator) -> Times:
        if num_requests > len(self.times_s):
            raise InvalidInputError(f"the trace has {len(self.times_s)} arrivals, {num_requests} requests were asked for")
        times_s = np.asarray(self.times_s[:num_requests]) - self.times_s[0]
        return np.rint(times_s * (self.rate_rps / rate_rps * _NS_PER_S)).astype(np.int64)


def _running_sum(gaps_s: NDArray[np.float64]) -> Times:
    return np.rint(np.cumsum(gaps_s) * _NS_PER_S).astype(np.int64)
