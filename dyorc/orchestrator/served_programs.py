"""The programs that an orchestrator serves, which come and go while it runs. For the event loop's thread."""

from typing import Protocol

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.engine.events import Event, ProgramAdded, ProgramRemoved, WorkflowRemoved
from dyorc.models.registry import ModelRegistry
from dyorc.models.status import HOLDING, StatusBoard
from dyorc.orchestrator.fleet import Fleet
from dyorc.orchestrator.scaler import Scaler

_LOOK_AGAIN_S = 1.0


class Serving(Protocol):
    """What runs the programs: the orchestrator."""

    def tell_now(self, event: Event) -> None:
        """Makes the engine handle an event before this returns."""
        ...

    def want(self, program: str, num_warm: int, num_parked: int) -> None:
        """Sets how many replicas a program has."""
        ...

    def begin_scaling(self) -> None:
        """Scales programs from now on, if that has not begun: there is one whose number of replicas is not fixed."""
        ...


class ServedPrograms:
    """The served programs.

    Args:
        registry: The programs at the start.
        scaler: Forgets programs that leave.

    Attributes:
        by_name: All of them.
        scaled: Programs whose replicas the scaler counts: all except those about to be removed.
    """

    def __init__(self, registry: ModelRegistry, status: StatusBoard, fleet: Fleet, scaler: Scaler, serving: Serving) -> None:
        self.by_name = {program.name: program for program in registry.programs}
        self.scaled = dict(self.by_name)
        self._twins = set(registry.twins)
        self._status = status
        self._fleet = fleet
        self._scaler = scaler
        self._serving = serving
        if any(map(_is_scaled, registry.programs)):
            serving.begin_scaling()

    def twins_added(self) -> list[Event]:
        """Returns the events that tell a new engine about programs that share a name."""
        return [ProgramAdded(twin) for twin in self._twins]

    def add(self, program: Program, *, is_awaited: bool = True) -> bool:
        """Serves another program from now on. If a program of its name is served already, that one is used instead.

        Args:
            is_awaited: See `ProgramStatus`.

        Returns:
            Whether its replicas come by themselves; otherwise the caller has to start them.
        """
        if program.name in self.by_name:
            self._twins.add(program)
            self._serving.tell_now(ProgramAdded(program))
            return True
        self.by_name[program.name] = program
        self._serving.tell_now(ProgramAdded(program))
        self._status.add(program, is_awaited=is_awaited)
        self.scaled[program.name] = program
        is_started = self._fleet.add(program)
        if _is_scaled(program):
            self._serving.begin_scaling()
        return is_started

    async def unload(self, program: Program) -> None:
        """Makes a program's replicas drop it, each once it has returned its batches. Returns when all have. Any call of the
        program would wait for ever."""
        if self.by_name.get(program.name) is not program:
            return
        self.scaled.pop(program.name, None)
        self._serving.want(program.name, 0, 0)
        status = self._status.programs[program.name]
        while any(replica.state in HOLDING for replica in status.replicas.values()):
            await self._status.wait_for_change(_LOOK_AGAIN_S)

    def remove(self, program: Program) -> None:
        """Forgets a program, or a twin, that nothing calls."""
        self._twins.discard(program)
        self._serving.tell_now(ProgramRemoved(program))
        if self.by_name.get(program.name) is program:
            del self.by_name[program.name]
            self.scaled.pop(program.name, None)
            self._fleet.remove(program.name)
            self._status.remove(program.name)
            self._scaler.forget(program.name)

    def forget(self, workflow: Workflow) -> None:
        """Forgets what was learned of a workflow that is no longer served."""
        self._serving.tell_now(WorkflowRemoved(workflow))


def _is_scaled(program: Program) -> bool:
    return not program.options.bounds.is_fixed
