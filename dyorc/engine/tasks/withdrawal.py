"""Takes back calls and tasks that nobody needs any more."""

from collections.abc import Callable

from dyorc.engine.guessing.speculation import Speculator
from dyorc.engine.model.cells import Call, CallState
from dyorc.engine.model.journal import Entry
from dyorc.engine.model.requests import Request, Task, TaskState, closure, is_effect, is_unfinished, live_effects, request_of
from dyorc.engine.tasks.early_release import EarlyRelease


class Withdrawals:
    """Withdraws.

    Args:
        release: Told of what needs no tensors any more.
        withdraw: Takes a submitted call back from the scheduler.

    Attributes:
        touched: Requests of which something was withdrawn while lost tensors were being made again, perhaps for that.
    """

    def __init__(self, speculator: Speculator, release: EarlyRelease, withdraw: Callable[[Call], None]) -> None:
        self._speculator = speculator
        self._release = release
        self._withdraw = withdraw
        self.touched: dict[Request, None] = {}

    def stop(self, task: Task) -> None:
        """A task is ended before its coroutine has: closes its runs, and takes back what rests on decisions that are open."""
        close_paths(task)
        for segment in task.journal.below():
            if not segment.is_certain:
                for entry in segment.entries:
                    self.abandon(entry)

    def withdraw_unneeded(self, task: Task) -> None:
        """A task's coroutine has ended: takes back what neither its result nor an effect needs."""
        live = [entry for entry in task.entries() if is_unfinished(entry)]
        if not live:
            return
        needed = set(closure([argument.cell for argument in task.result] + [effect.cell for effect in live_effects(task)]))
        for entry in live:
            if entry not in needed:
                self.abandon(entry)

    def abandon(self, entry: Entry) -> float:
        """Withdraws a call, or a task with all that it asked for. Gives the seconds that guesses in it were expected to cost."""
        cost_s = 0.0
        request = request_of(entry)
        if request.restoring:
            self.touched[request] = None
        pending: list[Entry] = [entry]
        while pending:
            entry = pending.pop()
            if isinstance(entry, Call):
                if entry.bet is not None:
                    cost_s += self._speculator.lose(entry)
            elif entry.state is not TaskState.WITHDRAWN:
                pending.extend(entry.entries())  # also of a task that has settled: its effects may still wait
            if request.has_stored:
                self._release.ended(entry, request)
            if not is_unfinished(entry):
                continue
            if isinstance(entry, Task):
                entry.state = TaskState.WITHDRAWN
                close_paths(entry)
            else:
                self._withdraw(entry)
                entry.state = CallState.WITHDRAWN
            if entry is not request.root and is_effect(entry):
                request.num_effects -= 1
        return cost_s


def close_paths(task: Task) -> None:
    """Ends all runs of a task."""
    for path in task.paths:
        path.close()
    task.paths = []
