"""Ends tasks, and withdraws calls and tasks that are no longer needed."""

from typing import Final

from dyorc.core.tensor import TensorRef
from dyorc.engine.guessing.speculation import Speculator
from dyorc.engine.interfaces import Dispatcher, StepMonitor
from dyorc.engine.model.futures import Argument
from dyorc.engine.model.journal import BranchPoint, Entry, Segment
from dyorc.engine.model.program_call import Call
from dyorc.engine.model.request_tree import Request, Task, TaskState
from dyorc.engine.model.tree_walks import closure, is_effect, is_unfinished, live_effects, request_of, unfinished
from dyorc.engine.tasks.early_release import EarlyRelease
from dyorc.engine.tasks.trace_events import trace_abandoned
from dyorc.engine.turn import Turn
from dyorc.errors import DyOrcError

_RETURNED: Final = TaskState.RETURNED
_SETTLED: Final = TaskState.SETTLED


class TaskEndings:
    """Ends tasks: withdraws what is no longer needed, and settles their futures.

    Args:
        release: Releases tensors that are no longer needed.
        watch: Measures what runs in workflows that are closed.
    """

    def __init__(
        self,
        turn: Turn,
        dispatcher: Dispatcher,
        speculator: Speculator,
        release: EarlyRelease,
        watch: StepMonitor | None,
    ) -> None:
        self._turn = turn
        self._dispatcher = dispatcher
        self._speculator = speculator
        self._release = release
        self._watch = watch

    def stop(self, task: Task) -> None:
        """Stops a task before its coroutine ends: closes its runs and withdraws what rests on open decisions. `finish` or `fail`
        must follow."""
        self._close_paths(task)
        for segment in task.journal.below():
            if not segment.is_certain:
                for entry in segment.entries:
                    self.abandon(entry)

    def finish(self, task: Task, result: tuple[Argument, ...]) -> None:
        """Ends a task's coroutine; the tensors of its result may still be computed."""
        task.paths = []
        task.state = _RETURNED
        task.result = result
        self._withdraw_unneeded(task)

    def settle(self, task: Task, tensors: tuple[TensorRef, ...]) -> None:
        """Settles a task whose result's tensors are there or, if it streams, have all been taken."""
        task.state = _SETTLED
        self._turn.settle(task.future, tensors)

    def fail(self, task: Task, error: DyOrcError) -> None:
        """Settles a task that will have no result."""
        self.finish(task, ())
        task.state = _SETTLED
        self._turn.fail(task.future, error)

    def _withdraw_unneeded(self, task: Task) -> None:
        """Withdraws what neither the result of a task whose coroutine has ended nor an effect needs."""
        live = unfinished(task)
        if not live:
            return
        wanted = [argument.future for argument in task.result] + [effect.future for effect in live_effects(task)]
        needed = set(closure(wanted, task))
        for entry in live:
            if entry not in needed:
                self.abandon(entry)
            elif entry.parts is not None and is_effect(entry):
                self._run_out(entry)  # perhaps nobody reads it, and it has to come to its end

    def end_unread(self, request: Request) -> None:
        """Ends what yields parts that nothing can read again; what has an effect goes on to its end."""
        for entry in self._release.unread(request):
            if is_effect(entry):
                self._run_out(entry)
            else:
                self.abandon(entry)

    def _run_out(self, entry: Entry) -> None:
        """Lets something that yields go on although nobody reads it."""
        if entry.parts is not None:
            entry.parts.is_unbounded = True
            self._turn.resumed.append(entry.parts)

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
            if request.has_stored or entry.streams:
                self._release.drop_arguments(entry, request)
            if not is_unfinished(entry):
                continue
            if entry.parts is not None:
                request.end_yielding(entry)
            if isinstance(entry, Task):
                entry.state = TaskState.WITHDRAWN
                self._close_paths(entry)
            else:
                self._dispatcher.withdraw(entry)
                entry.withdraw()
                if (restoration := request.restoring.get(entry.future)) is not None and restoration.call is None:
                    self._turn.restorations.append(restoration)  # another call has to make its parts again
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

    def _close_paths(self, task: Task) -> None:
        """Ends all runs of a task. Their ``finally`` blocks run, for as long as a step may take."""
        watch = self._watch if task.paths else None
        if watch is not None and watch.is_measuring:
            watch = None  # they are part of the step that ends the task
        for path in task.paths:
            if watch is not None:
                watch.begin(task.name)
            path.close()
            if watch is not None:
                watch.end()
        task.paths = []
