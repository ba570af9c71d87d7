"""Arrivals for tests of scaling."""

from collections.abc import Sequence

import numpy as np

Arrivals = list[tuple[float, str, Sequence[str]]]


def poisson(rate: float, start_s: float, end_s: float, rng: np.random.Generator) -> list[float]:
    """Returns times of independent arrivals."""
    return sorted(rng.uniform(start_s, end_s, rng.poisson(rate * (end_s - start_s))).tolist())


def along(times: Sequence[float], *route: str) -> Arrivals:
    """Lets requests of one workflow take the same route at these times."""
    return [(at_s, "flow", route) for at_s in times]
