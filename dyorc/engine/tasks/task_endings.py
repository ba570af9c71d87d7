"""How tasks end."""

from dyorc.core.tensor import TensorRef
from dyorc.engine.model.futures import Argument
from dyorc.engine.model.requests import Task, TaskState
from dyorc.engine.tasks.withdrawal import Withdrawals
from dyorc.engine.turn import Turn
from dyorc.errors import DyOrcError


class Endings:
    """Ends tasks: withdraws what nobody needs any more, and settles their futures."""

    def __init__(self, turn: Turn, withdrawals: Withdrawals) -> None:
        self._turn = turn
        self._withdrawals = withdrawals

    def stop(self, task: Task) -> None:
        """Stops a task whose coroutine has not ended by itself. `returned` or `failed` follows."""
        self._withdrawals.stop(task)

    def returned(self, task: Task, result: tuple[Argument, ...]) -> None:
        """Ends a task's coroutine; the tensors of its result may still be computed."""
        task.paths = []
        task.state = TaskState.RETURNED
        task.result = result
        self._withdrawals.withdraw_unneeded(task)

    def settled(self, task: Task, tensors: tuple[TensorRef, ...]) -> None:
        """Settles a task whose result's tensors are there or, if it streams, have all been taken."""
        task.state = TaskState.SETTLED
        self._turn.settle(task.future, tensors)

    def failed(self, task: Task, error: DyOrcError) -> None:
        """Settles a task that will have no result."""
        self.returned(task, ())
        task.state = TaskState.SETTLED
        self._turn.fail(task.future, error)
