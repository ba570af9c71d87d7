"""Requests and their tasks: steps workflows, makes their calls ready, and carries results to whoever waits.

A request is a tree of tasks: its workflow, and the workflows that one calls. This side of the engine knows nothing of queues
and replicas; it hands ready calls to the scheduler and is told how they ended.
"""

from collections import Counter, deque
from collections.abc import Callable

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
from dyorc.engine.cells import Argument, Call, CallState, Cell, CellState, Outcome, Waiter
from dyorc.engine.events import RequestArrived, ValueFetched
from dyorc.engine.foresight import Foresight
from dyorc.engine.journal import BranchPoint, Entry, Segment
from dyorc.engine.paths import Blocked, End, Path, Raised, Returned, Undecided
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
from dyorc.engine.speculation import Speculator
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
        commit: Told of a submitted guess that has become certain.
        emit: Takes actions.
    """

    def __init__(
        self,
        config: EngineConfig,
        programs: dict[str, Program],
        speculator: Speculator,
        submit: Callable[[Call], None],
        withdraw: Callable[[Call], None],
        commit: Callable[[Call], None],
        emit: Callable[[Action], None],
    ) -> None:
        self._config = config
        self._programs = programs
        self._speculator = speculator
        self._submit = submit
        self._withdraw = withdraw
        self._commit_call = commit
        self._emit = emit
        self.foresight: Foresight | None = None
        self.requests: dict[int, Request] = {}
        self.runnable: deque[Waiter] = deque()
        self.settled: deque[Cell] = deque()
        self._now_ns = 0
        self._num_arrived = 0
        self._num_call_ids = 0
        self._num_checks: Counter[Workflow] = Counter()
        self._fetching: dict[int, Cell] = {}
        self.fetch_waiters: dict[Cell, list[Waiter]] = {}
        self._num_fetches = 0

    # Requests

    def start(self, event: RequestArrived, deadline_ns: int) -> Request:
        """Takes a request in. Nothing runs before `run`."""
        self._num_arrived += 1
        budget = self._speculator.budget(event.workflow)
        request = Request(event.request_id, (deadline_ns, -event.priority, self._num_arrived), budget)
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

    def run(self, now_ns: int) -> None:
        """Carries results on and steps tasks until all of them wait."""
        self._now_ns = now_ns
        while self.settled or self.runnable:
            while self.settled:
                self._tell_dependents(self.settled.popleft())
            if self.runnable:
                waiter = self.runnable.popleft()
                if isinstance(waiter, Path):
                    self._step(waiter)
                elif isinstance(waiter, Task):
                    self._complete(waiter)
                else:
                    self._reconsider(waiter)

    # Results from the scheduler

    def call_done(self, call: Call, outputs: tuple[TensorRef, ...]) -> None:
        """A call ran."""
        stored = stored_ids(outputs)
        if call.state is CallState.WITHDRAWN:
            if stored:
                self._emit(ReleaseTensors(stored))
            return
        call.segment.task.request.stored.extend(stored)
        call.state = CallState.SETTLED
        self._settle(call.cell, outputs)

    def call_failed(self, call: Call, error: DyOrcError) -> None:
        """A call cannot be run."""
        if call.state is not CallState.WITHDRAWN:
            call.state = CallState.SETTLED
            self._fail(call.cell, error)

    def call_deferred(self, call: Call) -> None:
        """A guess went wrong on its replica: it is not tried again before it is certain."""
        if call.state is CallState.WITHDRAWN:
            return
        call.state = CallState.WAITING
        call.awaits_commit = True
        call.num_awaited += 1

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
        for waiter in self.fetch_waiters.pop(cell, ()):
            self._arrived(waiter)

    # Tasks

    def _open(self, task: Task) -> None:
        task.started_ns = self._now_ns
        self._open_path(task)

    def _open_path(self, task: Task, assumed: dict[BranchPoint, Outcome] | None = None) -> None:
        """Starts a run of a task: its first, or another one under given outcomes of open decisions."""
        path = Path(task.callee, task.inputs(), task.statics, task.journal, self, assumed or {})
        task.paths.append(path)
        self.runnable.append(path)

    def make_entry(
        self, path: Path, callee: Program | Workflow, arguments: tuple[Argument, ...], statics: tuple[StaticValue, ...]
    ) -> Entry:
        """A call that is new to a task's journal.

        Raises:
            WorkflowError: If the request may not make it.
        """
        segment = path.segment
        request = segment.task.request
        num_calls = request.num_calls if segment.is_certain else request.num_calls + request.num_guessed
        if num_calls >= self._config.max_calls_per_request:
            raise self._too_many_calls(callee)
        if segment.is_certain:
            request.num_calls += 1
        else:
            request.num_guessed += 1
        if isinstance(callee, Workflow):
            return Task(request, callee, arguments, statics, segment)
        if self._programs.get(callee.name) is not callee:
            raise NotDeployedError(
                f"program {callee.name!r} is not deployed; deployed are {sorted(self._programs)}. "
                f"If the workflow reaches it in a way that cannot "
                f"be read from its code, declare it: @dyorc.workflow(programs=[...])"
            )
        return Call(callee, arguments, statics, segment)

    def _too_many_calls(self, callee: Program | Workflow) -> WorkflowLimitError:
        limit = self._config.max_calls_per_request
        return WorkflowLimitError(f"the request made more than {limit} calls, the last of {callee.name!r}")

    def _step(self, path: Path) -> None:
        if path.is_closed:
            return
        task = path.segment.task
        if path.end is not None:
            self._finish(task, path.end)
            return
        stop = path.run()
        self._issue(path)
        match stop:
            case Blocked(pending=pending, unfetched=unfetched):
                for cell in pending:
                    self._await(path, cell)
                for cell in unfetched:
                    self._fetch(path, cell)
            case Undecided():
                pass  # the decision tells its task when it is taken
            case Raised(error=WorkflowLimitError()) if path.assumed:
                self._take_back(path)  # a guess must not make a request fail
            case Returned() | Raised():
                path.end = stop
                if not path.assumed:
                    self._finish(task, stop)

    def _finish(self, task: Task, end: End) -> None:
        """A task's coroutine has ended, and that rests on no guess of its own."""
        if isinstance(end, Raised):
            self._end_with_error(task, end.error)
            return
        if error := self._check_determinism(task):
            self._end_with_error(task, error)
            return
        task.paths = []
        task.state = TaskState.RETURNED
        task.result = end.result
        self._withdraw_unneeded(task)
        for argument in end.result:
            if argument.cell.state is CellState.PENDING:
                self._await(task, argument.cell)
        if not task.num_awaited:
            self._complete(task)

    def _issue(self, path: Path) -> None:
        """Starts what a run newly asked for."""
        for point in path.opened:
            self._watch(point)
        path.opened.clear()
        for entry in path.issued:
            request = entry.segment.task.request if isinstance(entry, Call) else entry.request
            if is_effect(entry):
                request.num_effects += 1
                request.has_effects = True
            if isinstance(entry, Task):
                self._open(entry)
            else:
                self._issue_call(entry, request)
        path.issued.clear()

    def _issue_call(self, call: Call, request: Request) -> None:
        self._num_call_ids += 1
        call.call_id = self._num_call_ids
        call.order = request.order
        if not call.segment.is_certain:
            call.is_guess = call.segment.probability() < 1
            if not call.callee.options.pure:
                call.awaits_commit = True
                call.num_awaited += 1
        for argument in call.arguments:
            if argument.cell.state is CellState.PENDING:
                argument.cell.dependents.append(call)
                call.num_awaited += 1
        is_due = not call.num_awaited or any(a.cell.state is CellState.FAILED for a in call.arguments)
        if is_due:
            self._make_ready(call)

    def _make_ready(self, call: Call) -> None:
        """All inputs of a call are there, or one has failed."""
        for argument in call.arguments:
            if argument.cell.error is not None:
                self.call_failed(call, argument.cell.error)
                return
        program = call.callee
        try:
            call.operands = tuple([argument.resolve() for argument in call.arguments])
            program.signature.check_inputs(call.operands)
            call.batch_key = program.batch_keys.key(call.operands, call.statics)
        except Exception as error:  # whatever a view or a shape is about, it is this call's alone
            self.call_failed(call, ProgramError(program.name, type(error).__name__, str(error)))
            return
        self._submit(call)

    def _complete(self, task: Task) -> None:
        """The tensors of a task's result are all there, or one has failed."""
        if task.state is not TaskState.RETURNED:
            return
        for argument in task.result:
            if argument.cell.error is not None:
                self._end_with_error(task, argument.cell.error)
                return
        where = f"workflow {task.callee.name!r} returned"
        try:
            tensors = tuple([argument.resolve() for argument in task.result])
            sizes: dict[str, tuple[int, str]] = {}
            for spec, tensor in zip(task.callee.signature.outputs.tensors, tensors, strict=True):
                spec.check(tensor.dtype, tensor.shape, sizes, where)
        except Exception as error:  # whatever a view or a shape is about, it is this task's alone
            self._end_with_error(task, WorkflowError(f"{error}"))
            return
        task.state = TaskState.SETTLED
        if self.foresight is not None and task.segment is not None:
            self.foresight.task_ended(task.callee, self._now_ns - task.started_ns)
        self._settle(task.cell, tensors)

    def _end_with_error(self, task: Task, error: DyOrcError) -> None:
        task.paths = []
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
        path = Path(task.callee, task.inputs(), task.statics, task.journal, _ClosedJournal())
        stop = path.run()
        if isinstance(stop, Blocked | Undecided):
            error = path.nondeterministic("a value that it had not looked at")
            path.close()
            return error
        return stop.error if isinstance(stop, Raised) else None

    # Decisions

    def _watch(self, point: BranchPoint) -> None:
        """A decision is open: waits for its value."""
        cell = point.decision.ref.cell
        if cell.state is CellState.PENDING:
            self._await(point, cell)
        else:
            self._fetch(point, cell)

    def guess(self, path: Path, point: BranchPoint) -> tuple[Outcome] | None:
        """Which outcome a path takes for granted at an open decision; other paths follow the others that pay as well."""
        outcomes = self._speculator.follow(point, len(path.assumed))
        if not outcomes:
            return None
        for other in outcomes[1:]:
            self._open_path(point.segment.task, {**path.assumed, point: other})
        return (outcomes[0],)

    def _reconsider(self, point: BranchPoint) -> None:
        """The value of an open decision has come: takes it, keeps what was guessed right, and drops the rest."""
        task = point.segment.task
        if point.is_dropped or task.state is not TaskState.ACTIVE:
            return
        cell = point.decision.ref.cell
        if cell.state is CellState.READY and not cell.is_at_hand:
            self._fetch(point, cell)
            return
        followed = dict(point.branches)
        point.take()
        self._speculator.learn_outcome(point)
        if not followed:
            self.runnable.extend(path for path in task.paths if path.undecided is point)
            return
        taken = point.branches[point.outcome]
        is_held = self._sort_paths(point)
        gains_s = dict.fromkeys(followed, 0.0)
        for outcome, branch in followed.items():
            if branch is not taken:
                del point.branches[outcome]
                gains_s[outcome] = -self._squash(branch)
        if point.segment.is_certain:
            gain_s = self._commit(taken)
            if point.outcome in gains_s:
                gains_s[point.outcome] = gain_s
        for outcome, gain_s in gains_s.items():
            self._speculator.learn_payoff(point.decision.site, outcome, gain_s)
        if task.request.num_calls > self._config.max_calls_per_request:
            self._close_paths(task)
            self._end_with_error(task, self._too_many_calls(task.callee))
        elif not is_held:
            self._open_path(task, dict(reversed([(p, o) for p, o in taken.open_points() if p.segment.task is task])))

    def _sort_paths(self, point: BranchPoint) -> bool:
        """A decision was taken: wakes the path that waits for it, closes those that assumed another outcome, and lets those that
        were right go on with one guess less. Says whether there is one that goes on."""
        task, taken = point.segment.task, point.branches[point.outcome]
        is_held = False
        for path in list(task.paths):
            if path.undecided is point:
                is_held = True
                self.runnable.append(path)
            elif point in path.assumed:
                if point.branches.get(path.assumed[point]) is taken:
                    is_held = True
                    del path.assumed[point]
                    if path.end is not None and not path.assumed:
                        self.runnable.append(path)
                else:
                    path.close()
                    task.paths.remove(path)
        return is_held

    def _commit(self, segment: Segment | None) -> float:
        """A branch has become certain, and what follows it up to the next open decision. Gives the seconds gained by guessing."""
        gain_s = 0.0
        while segment is not None:
            segment.is_certain = True
            segment.origin = None
            request = segment.task.request
            request.num_calls += len(segment.entries)
            request.num_guessed -= len(segment.entries)
            for entry in segment.entries:
                if isinstance(entry, Task):
                    gain_s += self._commit(entry.journal)
                    continue
                if entry.bet is not None:
                    gain_s += self._speculator.win(entry)
                entry.is_guess = False
                if entry.state is CallState.GUESSED:
                    self._commit_call(entry)
                elif entry.awaits_commit:
                    self._commit_waiting(entry)
            segment = segment.next_taken()
        return gain_s

    def _commit_waiting(self, call: Call) -> None:
        """A call that had to wait until it is certain is that now."""
        call.awaits_commit = False
        call.num_awaited -= 1
        if not call.num_awaited and call.state is CallState.WAITING:
            self._make_ready(call)

    def _squash(self, branch: Segment) -> float:
        """Withdraws everything below a branch that is not taken. Gives the seconds that it was expected to cost others."""
        cost_s = 0.0
        for segment in branch.below():
            if isinstance(segment.end, BranchPoint):
                segment.end.is_dropped = True
            for entry in segment.entries:
                cost_s += self._abandon(entry)
        branch.task.request.num_guessed -= dismantle(branch)
        return cost_s

    def _take_back(self, path: Path) -> None:
        """Gives up a path that guesses; its first open decision will start another when it is taken."""
        point, outcome = next(iter(path.assumed.items()))
        task, branch = point.segment.task, point.branches.pop(outcome)
        for other in list(task.paths):
            if point in other.assumed and other.assumed[point] == outcome:
                other.close()
                task.paths.remove(other)
        self._squash(branch)

    @staticmethod
    def _close_paths(task: Task) -> None:
        for path in task.paths:
            path.close()
        task.paths = []

    # Values on their way

    def _await(self, waiter: Waiter, cell: Cell) -> None:
        cell.dependents.append(waiter)
        waiter.num_awaited += 1

    def _fetch(self, waiter: Waiter, cell: Cell) -> None:
        waiter.num_awaited += 1
        waiters = self.fetch_waiters.setdefault(cell, [])
        waiters.append(waiter)
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
            if not isinstance(dependent, Call):
                self._arrived(dependent)
            else:
                dependent.num_awaited -= 1
                is_due = not dependent.num_awaited or cell.state is CellState.FAILED
                if is_due and dependent.state is CallState.WAITING:
                    self._make_ready(dependent)
        producer = cell.producer
        if producer is not None:
            self._ended(producer)

    def _arrived(self, waiter: Waiter) -> None:
        waiter.num_awaited -= 1
        if not waiter.num_awaited:
            self.runnable.append(waiter)

    def _ended(self, entry: Entry) -> None:
        """A call or task has settled or was withdrawn: count its effect, answer if it is the root."""
        request = _request_of(entry)
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

    # Endings

    def _answer(self, request: Request, action: AnswerRequest | FailRequest) -> None:
        request.is_answered = True
        self._emit(action)
        self._forget_if_done(request)

    def _forget_if_done(self, request: Request) -> None:
        is_done = request.is_answered and not request.num_effects
        if not is_done or self.requests.pop(request.request_id, None) is None:
            return
        root = request.root
        if request.has_effects and root is not None:
            self._abandon(root)  # an effect that failed early leaves behind what it did not wait for
        if request.stored:
            self._emit(ReleaseTensors(request.stored))
        if root is not None:
            request.root = None
            root.cell.producer = None
            root.paths = []
            dismantle(root.journal)
            del root.journal

    def _withdraw_unneeded(self, task: Task) -> None:
        """A task's coroutine has ended: takes back what neither its result nor an effect needs."""
        live = [entry for entry in task.entries() if is_unfinished(entry)]
        if not live:
            return
        needed = set(closure([argument.cell for argument in task.result] + [effect.cell for effect in live_effects(task)]))
        for entry in live:
            if entry not in needed:
                self._abandon(entry)

    def _abandon(self, entry: Entry) -> float:
        """Withdraws a call, or a task with all that it asked for. Gives the seconds that guesses among them were expected to cost."""
        cost_s = 0.0
        pending: list[Entry] = [entry]
        while pending:
            entry = pending.pop()
            if isinstance(entry, Call):
                if entry.bet is not None:
                    cost_s += self._speculator.lose(entry)
            elif entry.state is not TaskState.WITHDRAWN:
                pending.extend(entry.entries())  # also of a task that has settled: its effects may still wait
            if not is_unfinished(entry):
                continue
            if isinstance(entry, Task):
                entry.state = TaskState.WITHDRAWN
                self._close_paths(entry)
            else:
                self._withdraw(entry)
                entry.state = CallState.WITHDRAWN
            self._withdrawn(entry)
        return cost_s

    def _withdrawn(self, entry: Entry) -> None:
        request = _request_of(entry)
        if entry is not request.root and is_effect(entry):
            request.num_effects -= 1


class _ClosedJournal:
    """The guide of a replay: everything has to be in the journal."""

    def make_entry(self, *_: object) -> Entry:
        raise InternalError("a replay asked for a call that its closed journal should have refused")

    def guess(self, *_: object) -> tuple[Outcome] | None:
        return None


def _request_of(entry: Entry) -> Request:
    return entry.request if isinstance(entry, Task) else entry.segment.task.request
