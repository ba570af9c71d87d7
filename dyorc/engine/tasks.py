"""Requests and their tasks: steps workflows, makes their calls ready, and carries results to whoever waits.

A request is a tree of tasks: its workflow, and the workflows that one calls. This side of the engine knows nothing of queues
and replicas; it hands ready calls to the scheduler and is told how they ended.
"""

from collections import Counter, deque
from collections.abc import Callable
from functools import partial

from dyorc.authoring.program import Program
from dyorc.authoring.signature import StaticValue
from dyorc.authoring.workflow import Workflow
from dyorc.config import EngineConfig
from dyorc.engine.actions import (
    Action,
    AnswerRequest,
    FailRequest,
    FetchValue,
    ReleaseTensors,
)
from dyorc.engine.cells import Argument, Call, CallState, Cell, CellState
from dyorc.engine.events import RequestArrived, ValueFetched
from dyorc.engine.journal import Entry
from dyorc.engine.paths import Blocked, Path, Raised, Returned
from dyorc.engine.requests import (
    Request,
    Task,
    TaskState,
    closure,
    dismantle,
    is_effect,
    is_unfinished,
    live_effects,
)
from dyorc.errors import (
    DyOrcError,
    InternalError,
    NotDeployedError,
    ProgramError,
    WorkflowError,
    WorkflowLimitError,
)
from dyorc.tensor import TensorRef, stored_ids


class TaskRunner:
    """Runs the tasks of all requests.

    Args:
        programs: What is deployed, by name.
        submit: Takes a call whose inputs are all there.
        withdraw: Takes a submitted call back.
        emit: Takes actions.
    """

    def __init__(
        self,
        config: EngineConfig,
        programs: dict[str, Program],
        submit: Callable[[Call], None],
        withdraw: Callable[[Call], None],
        emit: Callable[[Action], None],
    ) -> None:
        self._config = config
        self._programs = programs
        self._submit = submit
        self._withdraw = withdraw
        self._emit = emit
        self.requests: dict[int, Request] = {}
        self.runnable: deque[Task] = deque()
        self.settled: deque[Cell] = deque()
        self._num_arrived = 0
        self._num_call_ids = 0
        self._num_checks: Counter[Workflow] = Counter()
        self._fetching: dict[int, Cell] = {}
        self.fetch_waiters: dict[Cell, list[Task]] = {}
        self._num_fetches = 0

    # Requests

    def start(self, event: RequestArrived, deadline_ns: int) -> Request:
        """Takes a request in. Nothing runs before `run`."""
        self._num_arrived += 1
        request = Request(event.request_id, (deadline_ns, -event.priority, self._num_arrived))
        request.stored.extend(stored_ids(event.inputs))
        arguments = tuple(Argument(Cell.ready(tensor), 0) for tensor in event.inputs)
        request.root = Task(request, event.workflow, arguments, event.statics)
        self.requests[event.request_id] = request
        self._open(request.root)
        return request

    def cancel(self, request_id: int, error: DyOrcError) -> None:
        """Fails a request from outside. Calls that have not been dispatched are not."""
        request = self.requests.get(request_id)
        if request is None or request.is_answered or request.root is None:
            return
        self._abandon(request.root)
        self._answer(request, FailRequest(request_id, error))

    def run(self) -> None:
        """Carries results on and steps tasks until all of them wait."""
        while self.settled or self.runnable:
            while self.settled:
                self._tell_dependents(self.settled.popleft())
            if self.runnable:
                self._step(self.runnable.popleft())

    # Results from the scheduler

    def call_done(self, call: Call, outputs: tuple[TensorRef, ...]) -> None:
        """A call ran."""
        stored = stored_ids(outputs)
        if call.state is CallState.WITHDRAWN:
            if stored:
                self._emit(ReleaseTensors(stored))
            return
        self._request_of(call).stored.extend(stored)
        call.state = CallState.SETTLED
        self._settle(call.cell, outputs)

    def call_failed(self, call: Call, error: DyOrcError) -> None:
        """A call cannot be run."""
        if call.state is not CallState.WITHDRAWN:
            call.state = CallState.SETTLED
            self._fail(call.cell, error)

    def fetched(self, event: ValueFetched) -> None:
        """Values that a workflow wanted to look at have come."""
        cell = self._fetching.pop(event.fetch_id, None)
        if cell is None:
            return
        if event.error is None:
            cell.show(event.arrays)
        else:
            cell.state = CellState.FAILED
            cell.error = event.error
        for task in self.fetch_waiters.pop(cell, ()):
            self._arrived(task)

    # Tasks

    def _open(self, task: Task) -> None:
        task.path = Path(task.callee, task.inputs(), task.statics, task.journal, partial(self._make_entry, task))
        self.runnable.append(task)

    def _make_entry(
        self, task: Task, callee: Program | Workflow, arguments: tuple[Argument, ...], statics: tuple[StaticValue, ...]
    ) -> Entry:
        request = task.request
        request.num_calls += 1
        if request.num_calls > self._config.max_calls_per_request:
            raise WorkflowLimitError(
                f"the request made more than {self._config.max_calls_per_request} calls, the last of {callee.name!r}"
            )
        if isinstance(callee, Workflow):
            return Task(request, callee, arguments, statics)
        if self._programs.get(callee.name) is not callee:
            raise NotDeployedError(
                f"program {callee.name!r} is not deployed; deployed are {sorted(self._programs)}. "
                f"If the workflow reaches it in a way that cannot "
                f"be read from its code, declare it: @dyorc.workflow(programs=[...])"
            )
        return Call(callee, arguments, statics)

    def _step(self, task: Task) -> None:
        if task.state is not TaskState.ACTIVE or task.path is None:
            if task.state is TaskState.RETURNED:
                self._complete(task)
            return
        stop = task.path.run()
        self._issue(task, task.path)
        match stop:
            case Blocked(pending=pending, unfetched=unfetched):
                for cell in pending:
                    self._await(task, cell)
                for cell in unfetched:
                    self._fetch(task, cell)
            case Returned(result=result):
                if error := self._check_determinism(task):
                    self._end_with_error(task, error)
                    return
                task.state = TaskState.RETURNED
                task.result = result
                self._withdraw_unneeded(task)
                for argument in result:
                    if argument.cell.state is CellState.PENDING:
                        self._await(task, argument.cell)
                if not task.num_awaited:
                    self._complete(task)
            case Raised(error=error):
                self._end_with_error(task, error)

    def _issue(self, task: Task, path: Path) -> None:
        """Starts what a run newly asked for."""
        for entry in path.issued:
            task.entries.append(entry)
            if is_effect(entry):
                task.request.num_effects += 1
                task.request.has_effects = True
            if isinstance(entry, Task):
                self._open(entry)
                continue
            self._num_call_ids += 1
            entry.call_id = self._num_call_ids
            entry.task = task
            entry.order = task.request.order
            for argument in entry.arguments:
                if argument.cell.state is CellState.PENDING:
                    argument.cell.dependents.append(entry)
                    entry.num_awaited += 1
            if not entry.num_awaited or any(a.cell.state is CellState.FAILED for a in entry.arguments):
                self._make_ready(entry)
        path.issued.clear()

    def _make_ready(self, call: Call) -> None:
        """All inputs of a call are there, or one has failed."""
        failure = next((a.cell.error for a in call.arguments if a.cell.error is not None), None)
        if failure is not None:
            self.call_failed(call, failure)
            return
        program = call.callee
        try:
            call.operands = tuple(argument.resolve() for argument in call.arguments)
            program.signature.check_inputs(call.operands)
            call.batch_key = program.batch_keys.key(call.operands, call.statics)
        except Exception as error:  # whatever a view or a shape is about, it is this call's alone
            self.call_failed(call, ProgramError(program.name, type(error).__name__, str(error)))
            return
        self._submit(call)

    def _complete(self, task: Task) -> None:
        """The tensors of a task's result are all there, or one has failed."""
        failure = next((a.cell.error for a in task.result if a.cell.error is not None), None)
        if failure is not None:
            self._end_with_error(task, failure)
            return
        where = f"workflow {task.callee.name!r} returned"
        try:
            tensors = tuple(argument.resolve() for argument in task.result)
            sizes: dict[str, tuple[int, str]] = {}
            for spec, tensor in zip(task.callee.signature.outputs.tensors, tensors, strict=True):
                spec.check(tensor.dtype, tensor.shape, sizes, where)
        except Exception as error:  # whatever a view or a shape is about, it is this task's alone
            self._end_with_error(task, WorkflowError(f"{error}"))
            return
        task.state = TaskState.SETTLED
        self._settle(task.cell, tensors)

    def _end_with_error(self, task: Task, error: DyOrcError) -> None:
        task.result = ()
        self._withdraw_unneeded(task)
        task.state = TaskState.SETTLED
        self._fail(task.cell, error)

    def _check_determinism(self, task: Task) -> DyOrcError | None:
        """Runs the first tasks of each workflow again against their journal."""
        if self._num_checks[task.callee] >= self._config.max_determinism_checks:
            return None
        self._num_checks[task.callee] += 1
        return self.replay(task)

    def replay(self, task: Task) -> DyOrcError | None:
        """Runs a task that has returned again, from its start; gives an error if it takes another course."""

        def refuse(*_: object) -> Entry:
            raise InternalError("a replay asked for a call that its closed journal should have refused")

        path = Path(task.callee, task.inputs(), task.statics, task.journal, refuse)
        stop = path.run()
        if isinstance(stop, Blocked):
            error = path.nondeterministic("a value that it had not looked at")
            path.close()
            return error
        return stop.error if isinstance(stop, Raised) else None

    # Values on their way

    def _await(self, task: Task, cell: Cell) -> None:
        cell.dependents.append(task)
        task.num_awaited += 1

    def _fetch(self, task: Task, cell: Cell) -> None:
        task.num_awaited += 1
        waiters = self.fetch_waiters.setdefault(cell, [])
        waiters.append(task)
        if len(waiters) == 1:
            self._num_fetches += 1
            self._fetching[self._num_fetches] = cell
            self._emit(FetchValue(self._num_fetches, cell.tensors))

    def _settle(self, cell: Cell, tensors: tuple[TensorRef, ...]) -> None:
        cell.fill(tensors)
        self.settled.append(cell)

    def _fail(self, cell: Cell, error: DyOrcError) -> None:
        cell.state = CellState.FAILED
        cell.error = error
        self.settled.append(cell)

    def _tell_dependents(self, cell: Cell) -> None:
        dependents, cell.dependents = cell.dependents, []
        for dependent in dependents:
            if isinstance(dependent, Task):
                self._arrived(dependent)
            else:
                dependent.num_awaited -= 1
                is_due = not dependent.num_awaited or cell.state is CellState.FAILED
                if is_due and dependent.state is CallState.WAITING:
                    self._make_ready(dependent)
        producer = cell.producer
        if producer is not None:
            self._ended(producer)

    def _arrived(self, task: Task) -> None:
        task.num_awaited -= 1
        if not task.num_awaited and task.is_live:
            self.runnable.append(task)

    def _ended(self, entry: Entry) -> None:
        """A call or task has settled or was withdrawn: count its effect, answer if it is the root."""
        request = self._request_of(entry)
        is_root = entry is request.root
        if is_root and not request.is_answered:
            cell = entry.cell
            if cell.error is not None:
                self._answer(request, FailRequest(request.request_id, cell.error))
            else:
                self._answer(request, AnswerRequest(request.request_id, cell.tensors))
        elif not is_root and is_effect(entry):
            request.num_effects -= 1
            self._forget_if_done(request)

    def _request_of(self, entry: Entry) -> Request:
        if isinstance(entry, Task):
            return entry.request
        if entry.task is None:
            raise InternalError(f"{entry!r} was never issued")
        return entry.task.request

    # Endings

    def _answer(self, request: Request, action: AnswerRequest | FailRequest) -> None:
        request.is_answered = True
        self._emit(action)
        self._forget_if_done(request)

    def _forget_if_done(self, request: Request) -> None:
        is_done = request.is_answered and not request.num_effects
        if not is_done or self.requests.pop(request.request_id, None) is None:
            return
        if request.has_effects and request.root is not None:
            self._abandon(request.root)  # an effect that failed early leaves behind what it did not wait for
        if request.stored:
            self._emit(ReleaseTensors(request.stored))
        dismantle(request)

    def _withdraw_unneeded(self, task: Task) -> None:
        """A task's coroutine has ended: takes back what neither its result nor an effect needs."""
        live = [entry for entry in task.entries if is_unfinished(entry)]
        if not live:
            return
        needed = set(closure([argument.cell for argument in task.result] + [effect.cell for effect in live_effects(task)]))
        for entry in live:
            if entry not in needed:
                self._abandon(entry)

    def _abandon(self, entry: Entry) -> None:
        """Withdraws a call, or a task with all that it asked for."""
        pending: list[Entry] = [entry]
        while pending:
            entry = pending.pop()
            if isinstance(entry, Task) and entry.state is not TaskState.WITHDRAWN:
                pending.extend(entry.entries)  # also of a task that has settled: its effects may still wait
            if not is_unfinished(entry):
                continue
            if isinstance(entry, Task):
                entry.state = TaskState.WITHDRAWN
                if entry.path:
                    entry.path.close()
            else:
                self._withdraw(entry)
                entry.state = CallState.WITHDRAWN
            self._withdrawn(entry)

    def _withdrawn(self, entry: Entry) -> None:
        request = self._request_of(entry)
        if entry is not request.root and is_effect(entry):
            request.num_effects -= 1
