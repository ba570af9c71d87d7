"""Whether a workflow takes the same course when run again with the same results: guessing and recovery rely on that."""

from collections import Counter
from collections.abc import Sequence

from dyorc.authoring.decisions import Decision, decisions_made
from dyorc.authoring.program import Program
from dyorc.authoring.signature import StaticValue
from dyorc.authoring.workflow import Workflow
from dyorc.engine.model.futures import Argument, Outcome
from dyorc.engine.model.journal import BranchPoint, Entry, StreamPart
from dyorc.engine.model.part_list import PartList
from dyorc.engine.model.request_tree import Task
from dyorc.engine.tasks.execution_paths import ExecutionPath
from dyorc.engine.tasks.stops import Raised, Returned
from dyorc.errors import DyOrcError, InternalError, WorkflowError


class DeterminismChecks:
    """Runs the first tasks of each workflow again against their journal.

    Args:
        max_checks: After how many tasks of a workflow that passed no more are checked.
    """

    def __init__(self, max_checks: int) -> None:
        self._max_checks = max_checks
        self._num_passed: Counter[Workflow] = Counter()

    def forget(self, workflow: Workflow) -> None:
        """Forgets a workflow that is no longer served."""
        self._num_passed.pop(workflow, None)

    def check(self, task: Task) -> DyOrcError | None:
        """Returns the error of a task that returned and turns out not to be deterministic, until enough have passed."""
        if self._num_passed[task.callee] >= self._max_checks:
            return None
        error = replay(task)
        if error is None:  # one that fails is checked each time: its answers may be wrong
            self._num_passed[task.callee] += 1
        return error


def replay(task: Task) -> DyOrcError | None:
    """Runs a task that has returned again from its start. Returns an error if it takes another course, or awaits too little."""
    path = ExecutionPath(task)
    made: list[Decision] = []
    token = decisions_made.set(made)
    try:
        stop = path.run(_ClosedJournal())
    finally:
        decisions_made.reset(token)
    if isinstance(stop, Raised):
        return stop.error
    if isinstance(stop, Returned):
        return _never_awaited(task, made)
    error = path.nondeterministic("a value that it had not looked at")
    path.close()
    return error


def _never_awaited(task: Task, made: Sequence[Decision]) -> WorkflowError | None:
    """Returns the error of a run that made a decision and did not await it."""
    for decision in made:
        if not decision.is_awaited:
            return WorkflowError(
                f"workflow {task.callee.name!r} never awaits {decision!r}, so that decides nothing; "
                f"write `await dyorc.{decision.kind.value}(...)`"
            )
    return None


class _ClosedJournal:
    """The guide of a replay: everything has to be in the journal."""

    def make_entry(
        self, path: ExecutionPath, callee: Program | Workflow, arguments: tuple[Argument, ...], statics: tuple[StaticValue, ...]
    ) -> Entry:
        raise InternalError("a replay asked for a call that its closed journal should have refused")

    def make_entries(
        self,
        path: ExecutionPath,
        callee: Program | Workflow,
        rows: Sequence[tuple[Argument, ...]],
        statics: tuple[StaticValue, ...],
    ) -> list[Entry] | None:
        raise InternalError("a replay asked for calls that its closed journal should have refused")

    def make_part(self, path: ExecutionPath, arguments: tuple[Argument, ...]) -> StreamPart | None:
        raise InternalError("a replay came to a part that its closed journal should have refused")

    def read_on(self, parts: PartList) -> None:
        pass

    def record_decision(self, point: BranchPoint) -> None:
        pass

    def guess(self, path: ExecutionPath, point: BranchPoint) -> tuple[Outcome] | None:
        return None
