"""What a scheduler in place of the engine's own has to be, where programs neither yield, nor read streams, nor keep residents."""

from collections.abc import Iterable, Sequence
from typing import Any

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.core.tensor import BlockId, TensorRef
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.interfaces import Load
from dyorc.engine.model.program_call import Call
from dyorc.engine.timers import Timer
from dyorc.errors import CapacityError, DyOrcError, InternalError


class BasicScheduler:
    """A scheduler for `dyorc.engine.engine.Engine` without guesses, whose tensors are never stored. Subclasses add `submit`,
    `submit_all` and `take`, and say what waits if anything does."""

    def __init__(self, context: EngineContext) -> None:
        self._turn = context.turn

    def check_room(self, programs: Iterable[Program]) -> CapacityError | None:
        """Returns None: there is always room."""
        return None

    def are_calls_waiting(self, programs: Iterable[Program]) -> bool:
        """Returns False: nothing is copied here that would have to give way."""
        return False

    def commit(self, call: Call) -> None:
        raise InternalError(f"{call!r} was a guess, and {type(self).__name__} takes none")

    def withdraw(self, call: Call) -> None:
        """Does nothing: what comes of the call is dropped."""

    def grant(self, call: Call) -> None:
        """Does nothing: no program yields."""

    def restart(self, call: Call) -> None:
        """Does nothing: no program yields."""

    def evict(self, blocks: Iterable[BlockId]) -> None:
        """Does nothing: no program keeps residents."""

    def home_of(self, call: Call) -> str:
        """Returns nothing: no program keeps residents."""
        return ""

    def bring_together(self, call: Call, residents: Sequence[TensorRef]) -> str:
        """Returns nothing: no program keeps residents."""
        return ""

    def feed(self, call: Call, stream: int, index: int, tensors: tuple[TensorRef, ...]) -> None:
        """Does nothing: no program reads a stream."""

    def end_feed(self, call: Call, stream: int, index: int, error: DyOrcError | None) -> None:
        """Does nothing: no program reads a stream."""

    def task_ended(self, workflow: Workflow, duration_ns: int) -> None:
        """Does nothing: there is nothing to look ahead for."""

    def fire(self, timer: Timer) -> None:
        """Does nothing: no timer is set."""

    def lose(self, blocks: Iterable[BlockId]) -> None:
        """Does nothing: no tensor is stored."""

    def forget(self, blocks: Iterable[BlockId]) -> None:
        """Does nothing: no tensor is stored."""

    def drain(self) -> None:
        """Does nothing: no call waits for others."""

    def load(self, program: str) -> Load:
        """Returns no load."""
        return Load(0, 0, None, 1)

    def coldness(self, program: str) -> str:
        """Returns nothing: no program is cold."""
        return ""

    def report(self, program: str) -> dict[str, Any]:
        """Returns nothing."""
        return {}
