"""What the libraries of planners and of the verifier keep for good does not count as a leak."""

import pytest


@pytest.fixture(scope="session")
def solver_threads() -> None:
    """Starts the threads that Z3 and HiGHS keep once they have been used."""
    import z3
    from scipy.optimize import linprog

    solver = z3.Solver()
    solver.set("timeout", 1000)
    solver.check()
    linprog([1.0], [[-1.0]], [-1.0], method="highs")


@pytest.fixture(scope="module", autouse=True)
def leaves_nothing(solver_threads: None, leaves_nothing: None) -> None:
    """Checks that the module leaves nothing else behind; see the folder above."""
