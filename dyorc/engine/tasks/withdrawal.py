"""Withdraws calls and tasks that nobody needs any more."""

from dyorc.engine.guessing.speculation import Speculator
from dyorc.engine.interfaces import Dispatcher
from dyorc.engine.model.calls import Call
from dyorc.engine.model.journal import BranchPoint, Entry, Segment
from dyorc.engine.model.requests import Task, TaskState
from dyorc.engine.model.walks import closure, is_effect, is_unfinished, live_effects, request_of, unfinished
from dyorc.engine.tasks.early_release import EarlyRelease
from dyorc.engine.tasks.trace_events import trace_abandoned
from dyorc.engine.turn import Turn


class Withdrawals:
    """Withdraws calls and tasks.

    Args:
        release: Told which tensors are no longer needed.
    """

    def __init__(self, turn: Turn, dispatcher: Dispatcher, speculator: Speculator, release: EarlyRelease) -> None:
        self._turn = turn
        self._dispatcher = dispatcher
        self._speculator = speculator
        self._release = release

    def stop(self, task: Task) -> None:
        """Ends a task before its coroutine ends: closes its runs and withdraws what rests on open decisions."""
        close_paths(task)
        for segment in task.journal.below():
            if not segment.is_certain:
                for entry in segment.entries:
                    self.abandon(entry)

    def withdraw_unneeded(self, task: Task) -> None:
        """Withdraws what neither the result of a task whose coroutine has ended nor an effect needs."""
        live = unfinished(task)
        if not live:
            return
        wanted = [argument.future for argument in task.result] + [effect.future for effect in live_effects(task)]
        needed = set(closure(wanted, task))
        for entry in live:
            if entry not in needed:
                self.abandon(entry)

    def abandon(self, entry: Entry, *, is_wrong: bool = False) -> float:
        """Withdraws a call, or a task with everything it asked for. Returns the expected cost of its guesses, in seconds.

        Args:
            is_wrong: Whether it was a wrong guess.
        """
        cost_s = 0.0
        request = request_of(entry)
        if request.restoring:
            self._turn.swept[request] = None
        pending: list[Entry] = [entry]
        while pending:
            entry = pending.pop()
            if isinstance(entry, Call):
                if entry.bet is not None:
                    cost_s += self._speculator.lose(entry)
                if entry.trace is not None:
                    trace_abandoned(entry.trace, self._turn.now_ns, is_wrong=is_wrong)
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
                self._dispatcher.withdraw(entry)
                entry.withdraw()
            if entry is not request.root and is_effect(entry):
                request.num_effects -= 1
        return cost_s

    def squash(self, branch: Segment) -> float:
        """Withdraws everything below a branch that is not taken. Returns the seconds it was expected to cost others."""
        cost_s = 0.0
        for segment in branch.below():
            if isinstance(segment.end, BranchPoint):
                segment.end.is_dropped = True
            for entry in segment.entries:
                cost_s += self.abandon(entry, is_wrong=True)
        request = branch.task.request
        request.num_guessed -= self._release.dismantle(branch, request)
        return cost_s


def close_paths(task: Task) -> None:
    """Ends all runs of a task."""
    for path in task.paths:
        path.close()
    task.paths = []
