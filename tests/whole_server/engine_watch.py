"""Checks the engine's invariants every few turns, since a count that was wrong for a moment may be right again at rest."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from dyorc.engine.engine import Engine
from dyorc.engine.invariants import check_all
from dyorc.engine.invariants.in_flight import InvariantError

_EVERY_TURNS = 16


class EngineWatch:
    """Watches all engines of a run.

    Attributes:
        wrong: What did not hold, first; after that nothing is checked.
    """

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self._num_turns = 0

    def begin(self) -> None:
        """Watches from now on, for as long as this process of the operating system lives."""
        engine: Any = Engine
        engine.handle = self._checked(engine.handle)

    def _checked(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        def handle(engine: Any, *values: Any) -> Any:
            actions = real(engine, *values)
            self._num_turns += 1
            if not self.wrong and self._num_turns % _EVERY_TURNS == 0:
                try:
                    check_all(engine)
                except InvariantError as error:
                    self.wrong.append(f"the engine after a turn: {error}")
            return actions

        return handle
