"""CP-SAT, the solver of OR-tools, as planners use it: one thread, a fixed seed and a limit that is counted in work rather than in
seconds, so that the same model gives the same answer on every machine. Ctrl-C ends a search with its best solution so far.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from ortools.sat.python import cp_model

from dyorc.planner.plan import SearchEnd
from dyorc.planner.planners.ending import end_of

Expression = cp_model.LinearExpr | cp_model.IntVar | int
_WAIT_S = 0.2


class SolverStatus(StrEnum):
    """How a search ended."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"  # a solution that is not proved to be the best
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"  # the limit was reached, or Ctrl-C pressed, before there was a solution


@dataclass(frozen=True)
class CpSatSolution:
    """The result of a search.

    Attributes:
        outcome: How it ended.
        value: Returns the value of a variable, if there is a solution.
        bound: What the objective is proved not to be better than.
        ended: Whether it ended by itself, which is also at its limit of work.
    """

    outcome: SolverStatus
    value: Callable[[Expression], int]
    bound: float
    ended: SearchEnd

    @property
    def has_solution(self) -> bool:
        """Whether there is one."""
        return self.outcome in (SolverStatus.OPTIMAL, SolverStatus.FEASIBLE)


_OUTCOMES = {
    cp_model.OPTIMAL: SolverStatus.OPTIMAL,
    cp_model.FEASIBLE: SolverStatus.FEASIBLE,
    cp_model.INFEASIBLE: SolverStatus.INFEASIBLE,
    cp_model.UNKNOWN: SolverStatus.UNKNOWN,
}


def solve(model: cp_model.CpModel, *, limit: float, seed: int = 1) -> CpSatSolution:
    """Searches for the best solution of a model.

    Args:
        model: Variables, constraints and maybe an objective.
        limit: CP-SAT's deterministic time: about as many seconds on a machine of today.
        seed: Of the search.

    Raises:
        ValueError: The model itself is wrong.
    """
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = limit
    solver.parameters.catch_sigint_signal = False  # Python's own handler raises KeyboardInterrupt here, in the main thread
    statuses: list[cp_model.CpSolverStatus] = []
    thread = threading.Thread(target=lambda: statuses.append(solver.solve(model)), name="dyorc-cp-sat")
    thread.start()
    ended = SearchEnd.FINISHED
    while thread.is_alive():
        try:
            thread.join(_WAIT_S)
        except KeyboardInterrupt as stop:
            ended = end_of(stop)
        if ended is not SearchEnd.FINISHED:
            solver.stop_search()  # more than once: a search that has not begun yet ignores it
    if not statuses or statuses[0] not in _OUTCOMES:
        raise ValueError(f"invalid CP-SAT model: {model.validate()}")
    return CpSatSolution(_OUTCOMES[statuses[0]], solver.value, solver.best_objective_bound, ended)
