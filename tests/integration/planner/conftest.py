"""Tests that run plans share one fork server. It does not count as a leak, nor what the libraries of planners and of the verifier
keep for good.
"""

from collections.abc import Iterator

import pytest

from dyorc.planner.runtime import RankForkServer
from tests.deadlines import TIMEOUT_S


@pytest.fixture(scope="session")
def solver_threads() -> None:
    """Starts the threads that Z3 and HiGHS keep once they have been used."""
    import z3
    from scipy.optimize import linprog

    solver = z3.Solver()
    solver.set("timeout", 1000)
    solver.check()
    linprog([1.0], [[-1.0]], [-1.0], method="highs")


@pytest.fixture(scope="session")
def fork_server() -> Iterator[RankForkServer]:
    """Forks ranks for all tests. The ranks are its children, so what a test leaves of them is found."""
    with RankForkServer(TIMEOUT_S) as started:
        yield started


@pytest.fixture(scope="module", autouse=True)
def leaves_nothing(fork_server: RankForkServer, solver_threads: None, leaves_nothing: None) -> None:
    """Checks that the module leaves nothing else behind; see the folder above."""
