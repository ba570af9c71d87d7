"""Checks engines every few turns, since what was wrong for a moment may be right again at rest."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from dyorc.engine.invariants import check_all
from dyorc.engine.invariants.in_flight import InvariantError
from dyorc.models.status import ReplicaState
from dyorc.orchestrator.orchestrator import Orchestrator

_EVERY_TURNS = 16


class EngineWatch:
    """Watches the engines of all orchestrators: their invariants, and that they know the replicas that their fleets have ready.

    Attributes:
        wrong: What did not hold, first; after that nothing is checked.
    """

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self._num_turns = 0

    def begin(self) -> None:
        """Watches from now on, for as long as this process of the operating system lives."""
        orchestrator: Any = Orchestrator
        orchestrator._take_turn = self._watched(orchestrator._take_turn)

    def _watched(self, real: Callable[[Any], None]) -> Callable[[Any], None]:
        @wraps(real)
        def take_turn(orchestrator: Any) -> None:
            real(orchestrator)
            self._num_turns += 1
            if self.wrong:
                return
            if not orchestrator._events:  # none is on its way that one of the two does not know yet
                self._check_replicas(orchestrator)
            if self._num_turns % _EVERY_TURNS == 0:
                self._check_invariants(orchestrator)

        return take_turn

    def _check_replicas(self, orchestrator: Any) -> None:
        for program, status in orchestrator.status.programs.items():
            if status.max_replicas is not None:
                continue  # it runs in the orchestrator's own process
            ready = {name for name, replica in status.replicas.items() if replica.state is ReplicaState.READY}
            pool = orchestrator._engine.scheduler.pools.get(program)
            known = set() if pool is None else {*pool.replicas, *pool.draining}
            if ready != known:
                self.wrong.append(f"ready are replicas {sorted(ready)} of {program!r}, the engine knows {sorted(known)}")

    def _check_invariants(self, orchestrator: Any) -> None:
        try:
            check_all(orchestrator._engine)
        except InvariantError as error:
            self.wrong.append(f"the engine after a turn: {error}")
