"""Open decisions: which branches are followed, and what happens to the branches when the decision is taken.

The branch that was guessed right *commits*: its calls become certain, at their place in the queue, and its path goes on.
The others are *squashed*: their calls leave the queues, and results of running ones are ignored. If no guess was right, the
coroutine is run again from its start, with everything in the journal answered at once.
"""

from typing import Final

from dyorc.engine.engine_context import EngineContext
from dyorc.engine.interfaces import Dispatcher
from dyorc.engine.model.futures import PENDING, READY, Outcome
from dyorc.engine.model.journal import BranchPoint, Segment
from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.model.request_tree import Task, TaskState
from dyorc.engine.tasks.execution_paths import ExecutionPath, open_path
from dyorc.engine.tasks.task_endings import TaskEndings
from dyorc.engine.tasks.tensor_needs import Fetches
from dyorc.engine.tasks.trace_events import trace_guesses, trace_outcome

_ACTIVE: Final = TaskState.ACTIVE


class Branching:
    """Follows and cuts off the branches of all tasks."""

    def __init__(self, context: EngineContext, dispatcher: Dispatcher, fetches: Fetches, endings: TaskEndings) -> None:
        self._turn = context.turn
        self._host = context.host
        self._dispatcher = dispatcher
        self._speculator = context.speculator
        self._fetches = fetches
        self._endings = endings

    def await_value(self, point: BranchPoint) -> None:
        """Waits for the values of an open decision."""
        for ref in point.decision.refs:
            if ref.future.state is PENDING:
                ref.future.add_waiter(point)
        if not point.num_awaited:
            self._fetch(point)

    def guess(self, path: ExecutionPath, point: BranchPoint) -> tuple[Outcome] | None:
        """Returns the outcome that a path assumes for an open decision; other paths follow other outcomes that pay."""
        outcomes = self._speculator.follow(point, len(path.assumed))
        if not outcomes:
            return None
        task = point.segment.task
        if (story := task.request.context.story) is not None:
            trace_guesses(story, point, outcomes, self._turn.now_ns)
        for other in outcomes[1:]:
            open_path(self._turn, task, {**path.assumed, point: other})
        return (outcomes[0],)

    def decide(self, point: BranchPoint) -> None:
        """Takes an open decision whose value has come: keeps the right guess and drops the rest."""
        task = point.segment.task
        if point.is_dropped or task.state is not _ACTIVE:
            return
        if not point.is_at_hand:
            self._fetch(point)
            return
        branches = dict(point.branches)
        point.take()
        self._speculator.learn_outcome(point)
        is_held = self._sort_paths(point)
        gains_s = self._settle_branches(point, branches) if branches else {}
        self._speculator.learn_payoffs(point, gains_s, is_held=is_held)
        if (story := task.request.context.story) is not None:
            trace_outcome(story, point, gains_s, self._turn.now_ns)
        if not is_held:
            task.request.context.record.num_replays += 1
            earlier = [(p, o) for p, o in point.segment.open_points() if p.segment.task is task]
            open_path(self._turn, task, dict(reversed(earlier)))

    def _fetch(self, point: BranchPoint) -> None:
        """Has the values brought here that lie elsewhere."""
        for ref in point.decision.refs:
            if ref.future.state is READY and not ref.future.is_at_hand:
                self._fetches.fetch(point, ref.future)

    def _sort_paths(self, point: BranchPoint) -> bool:
        """Wakes the path that waits for a decision, closes paths that assumed a wrong outcome, and continues the right ones with
        one guess less. Returns whether any goes on."""
        task, taken = point.segment.task, point.branches[point.outcome]
        is_held = False
        for path in list(task.paths):
            if path.undecided is point:
                is_held = True
                self._turn.runnable.append(path)
            elif point in path.assumed:
                if point.branches.get(path.assumed[point]) is taken:
                    is_held = True
                    del path.assumed[point]
                    if path.end is not None and not path.assumed:
                        self._turn.runnable.append(path)
                else:
                    path.close()
                    task.paths.remove(path)
        return is_held

    def _settle_branches(self, point: BranchPoint, branches: dict[Outcome, Segment]) -> dict[Outcome, float]:
        """Commits the branch taken and squashes the others. Returns the seconds gained by following each."""
        taken = point.branches[point.outcome]
        gains_s = dict.fromkeys(branches, 0.0)
        for outcome, branch in branches.items():
            if branch is not taken:
                del point.branches[outcome]
                gains_s[outcome] = -self._endings.squash(branch)
        if point.outcome in branches and point.segment.is_certain:
            gains_s[point.outcome] = self._commit(taken)
        return gains_s

    def _commit(self, branch: Segment) -> float:
        """Makes a branch certain, up to the next open decision. Returns the seconds gained by guessing."""
        gain_s = 0.0
        pending: list[Segment | None] = [branch]
        while pending:
            segment = pending.pop()
            if segment is None:
                continue
            segment.is_certain = True
            segment.origin = None
            request = segment.task.request
            request.num_calls += len(segment.entries)
            request.num_guessed -= len(segment.entries)
            for entry in segment.entries:
                if isinstance(entry, Task):
                    pending.append(entry.journal)
                else:
                    gain_s += self._commit_call(entry)
            pending.append(segment.next_taken())
        return gain_s

    def _commit_call(self, call: Call) -> float:
        call.is_guess = False
        if call.trace is not None and call.trace.is_guess:
            call.trace.committed_ns = self._turn.now_ns
        if (observer := self._host.observer) is not None:
            observer.called(call.segment.task.request.request_id, call.callee.name, self._turn.now_ns)
        if call.state is CallState.GUESSED:
            self._dispatcher.commit(call)
        elif call.awaits_commit:
            call.awaits_commit = False
            call.num_awaited -= 1
            if not call.num_awaited and call.state is CallState.WAITING:
                self._turn.ready.append(call)
        return 0.0 if call.bet is None else self._speculator.win(call)

    def give_up(self, path: ExecutionPath) -> None:
        """Squashes the guess that a path rests on. Its decision, the first open one or the last before its task, starts another
        path once it is taken."""
        point, outcome = next(iter(path.assumed.items())) if path.assumed else next(path.segment.open_points())
        task, branch = point.segment.task, point.branches.pop(outcome)
        for other in list(task.paths):
            if point in other.assumed and other.assumed[point] == outcome:
                other.close()
                task.paths.remove(other)
        self._endings.squash(branch)
