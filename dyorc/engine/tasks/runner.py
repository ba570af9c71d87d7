"""Requests and their tasks: steps workflows, makes their calls ready, and carries results to whoever waits.

A request is a tree of tasks: its workflow, and the workflows that one calls. This side of the engine knows nothing of queues
and replicas; it hands ready calls to the scheduler and is told how they ended.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from dyorc.authoring.program import Program
from dyorc.authoring.signature import StaticValue
from dyorc.authoring.workflow import Workflow
from dyorc.config import EngineConfig
from dyorc.engine.actions import Action, AnswerRequest, FailRequest
from dyorc.engine.events import AnswerTaken, PartTaken, RequestArrived, ValueFetched
from dyorc.engine.guessing.speculation import Speculator
from dyorc.engine.leases import Leases
from dyorc.engine.model.cells import Argument, Call, CallState, Cell, CellState, Outcome, Waiter
from dyorc.engine.model.journal import BranchPoint, Entry, Part
from dyorc.engine.model.requests import Request, Task, TaskState, dismantle, is_effect, request_of
from dyorc.engine.statistics import Statistics
from dyorc.engine.story import Step, Story
from dyorc.engine.tasks.branching import Branching
from dyorc.engine.tasks.early_release import EarlyRelease
from dyorc.engine.tasks.parts import Parts, Stream
from dyorc.engine.tasks.paths import Blocked, Crowded, End, Path, Raised, Returned, Undecided
from dyorc.engine.tasks.recovery import Recovery
from dyorc.engine.tasks.waiting import Waiting
from dyorc.engine.tasks.withdrawal import Withdrawals
from dyorc.errors import (
    DyOrcError,
    InternalError,
    NotDeployedError,
    ProgramError,
    ReplicaLostError,
    WorkflowError,
    WorkflowLimitError,
)
from dyorc.tensor import TensorRef, blocks_of


class TaskRunner:
    """Runs the tasks of all requests.

    Args:
        programs: What is deployed, by name.
        statistics: Where requests are counted, workflow by workflow.
        leases: Told which tensors requests keep.
        submit: Takes a call whose inputs are all there.
        withdraw: Takes a submitted call back.
        commit: Told of a submitted guess that has become certain.
        task_ended: Told how long a task took, in nanoseconds.
        emit: Takes actions.
    """

    def __init__(
        self,
        config: EngineConfig,
        programs: dict[str, Program],
        speculator: Speculator,
        statistics: Statistics,
        leases: Leases,
        submit: Callable[[Call], None],
        withdraw: Callable[[Call], None],
        commit: Callable[[Call], None],
        task_ended: Callable[[Workflow, int], None],
        emit: Callable[[Action], None],
    ) -> None:
        self._config = config
        self._programs = programs
        self._speculator = speculator
        self._statistics = statistics
        self._submit = submit
        self._emit = emit
        self._leases = leases
        self.waiting = Waiting(leases, self._is_missing, config.max_attempts, emit)
        self._release = EarlyRelease(leases)
        self._withdrawals = Withdrawals(speculator, self._release, withdraw)
        self._branching = Branching(
            speculator, self.waiting, self._withdrawals, leases, self._open_path, self._make_ready, commit
        )
        self.recovery = Recovery(
            config.max_attempts,
            leases,
            self._release,
            self.waiting,
            self._withdrawals.touched,
            self._make_again,
            withdraw,
            self.call_failed,
            self._restored,
            self._part_failed,
            self._is_part_due,
            self._tell,
        )
        self._parts = Parts(
            config,
            leases,
            self.waiting,
            self.recovery,
            self._release,
            self._withdrawals,
            lambda: self._now_ns,
            emit,
            self._end_stream,
        )
        self._task_ended = task_ended
        self.requests: dict[int, Request] = {}
        self._now_ns = 0
        self._num_arrived = 0
        self._num_call_ids = 0
        self._num_checks: Counter[Workflow] = Counter()

    # Requests

    def start(self, event: RequestArrived, deadline_ns: int, now_ns: int) -> Request:
        """Takes a request in. Nothing runs before `run`."""
        self._now_ns = now_ns
        self._num_arrived += 1
        budget = self._speculator.budget(event.workflow)
        terms = event.terms
        order = (-terms.priority, deadline_ns, self._num_arrived)
        record = self._statistics.of_workflow(event.workflow.name)
        request = Request(event.request_id, order, budget, record, now_ns, terms.tenant, terms.weight)
        if terms.explain:
            request.story = Story(now_ns)
        arguments = tuple([Argument(Cell.ready(tensor), 0) for tensor in event.inputs])
        if blocks_of(event.inputs):
            request.has_stored = True
            for argument in arguments:
                self._leases.keep_new(request.kept, argument.cell, blocks_of(argument.cell.tensors))
        request.root = Task(request, event.workflow, arguments, event.statics)
        if event.workflow.is_streaming:
            request.stream = Stream(request.root.journal)
        self.requests[event.request_id] = request
        self._open(request.root)
        return request

    def cancel(self, request_id: int, error: DyOrcError) -> None:
        """Fails a request from outside. Calls that have not been dispatched are not."""
        request = self.requests.get(request_id)
        if request is None or request.is_answered or request.root is None:
            return
        self._withdrawals.abandon(request.root)
        self._answer(request, FailRequest(request_id, error))

    def run(self, now_ns: int) -> None:
        """Carries results on and steps tasks until all of them wait."""
        self._now_ns = now_ns
        settled, runnable, restorations = self.waiting.settled, self.waiting.runnable, self.recovery.pending
        while settled or runnable or restorations:
            while settled:
                self._tell_dependents(settled.popleft())
            if runnable:
                waiter = runnable.popleft()
                if isinstance(waiter, Path):
                    self._step(waiter)
                elif isinstance(waiter, Task):
                    self._complete(waiter)
                elif isinstance(waiter, BranchPoint):
                    self._decide(waiter)
                else:
                    self._parts.wake(waiter)
            elif restorations:
                self.recovery.run()
        if self._withdrawals.touched:
            for request in self._withdrawals.touched:
                self.recovery.sweep(request)
            self._withdrawals.touched.clear()
        if self._release.touched:
            self._release.run()

    # Results from the scheduler

    def call_done(self, call: Call, outputs: tuple[TensorRef, ...], now_ns: int) -> None:
        """A call ran."""
        if call.state is CallState.WITHDRAWN or call.restores is not None:
            self.recovery.call_done(call, outputs)
            return
        request = call.segment.task.request
        if stored := blocks_of(outputs):
            request.has_stored = True
            self._leases.keep_new(request.kept, call.cell, stored)
        if request.story is not None:
            request.story.add(now_ns, "done", call=call.call_id, program=call.callee.name)
        call.state = CallState.SETTLED
        self.waiting.settle(call.cell, outputs)

    def call_failed(self, call: Call, error: DyOrcError) -> None:
        """A call cannot be run."""
        if call.state is CallState.WITHDRAWN or call.restores is not None:
            self.recovery.failed(call, error)
            return
        story = call.segment.task.request.story
        if story is not None:
            story.add(self._now_ns, "failed", call=call.call_id, program=call.callee.name, error=str(error))
        call.state = CallState.SETTLED
        self.waiting.fail(call.cell, error)

    def call_deferred(self, call: Call) -> None:
        """A guess went wrong on its replica: it is not tried again before it is certain."""
        if call.state is CallState.WITHDRAWN:
            return
        call.state = CallState.WAITING
        call.order = call.segment.task.request.order
        call.awaits_commit = True
        call.num_awaited += 1

    def call_unready(self, call: Call) -> None:
        """A call that was submitted is not, because tensors were lost: perhaps its inputs. It has left its queue or its batch."""
        call.state = CallState.WAITING
        if call.is_guess:
            self.call_deferred(call)
        else:
            self._make_ready(call)

    def fetched(self, event: ValueFetched) -> None:
        """A value that a workflow wanted to look at has come."""
        self.waiting.fetched(event)

    def answer_taken(self, event: AnswerTaken) -> None:
        """The tensors of an answer have been read, or were lost before."""
        request = self.requests.get(event.request_id)
        if request is None or not request.is_untaken:
            return
        if not event.lost:
            request.is_untaken = False
            self._forget_if_done(request)
        elif request.num_answers < self._config.max_attempts:
            self._give_answer(request)
        else:
            error = ReplicaLostError(f"the answer was lost {request.num_answers} times before it was read")
            self._answer(request, FailRequest(request.request_id, error))

    def part_taken(self, event: PartTaken) -> None:
        """The tensors of a part have been read, or were lost before."""
        request = self.requests.get(event.request_id)
        if request is not None:
            self._parts.taken(request, event)

    # Tasks

    def _open(self, task: Task) -> None:
        task.started_ns = self._now_ns
        self._open_path(task)

    def _open_path(self, task: Task, assumed: dict[BranchPoint, Outcome] | None = None) -> None:
        """Starts a run of a task: its first, or another one under given outcomes of open decisions."""
        path = Path(task.callee, task.inputs(), task.statics, task.journal, self, assumed or {})
        task.paths.append(path)
        self.waiting.runnable.append(path)

    def guess(self, path: Path, point: BranchPoint) -> tuple[Outcome] | None:
        """Which outcome a path takes for granted at an open decision."""
        guess = self._branching.guess(path, point, self._now_ns)
        request = point.segment.task.request
        if guess is not None and request.kept:
            point.unheld = self._release.unheld(request)
        return guess

    def make_part(self, path: Path, arguments: tuple[Argument, ...]) -> Part | None:
        """A part that is new to a task's journal; None if the path has to wait until others have been taken."""
        return self._parts.make(path, arguments)

    def make_entry(
        self, path: Path, callee: Program | Workflow, arguments: tuple[Argument, ...], statics: tuple[StaticValue, ...]
    ) -> Entry:
        """A call that is new to a task's journal.

        Raises:
            WorkflowError: If the request may not make it.
        """
        segment = path.segment
        request = segment.task.request
        if isinstance(callee, Program) and self._programs.get(callee.name) is not callee:
            raise NotDeployedError(
                f"program {callee.name!r} is not deployed; deployed are {sorted(self._programs)}. "
                f"If the workflow reaches it in a way that cannot "
                f"be read from its code, declare it: @dyorc.workflow(programs=[...])"
            )
        if isinstance(callee, Workflow) and callee.is_streaming:
            raise WorkflowError(f"workflow {callee.name!r} answers in parts; only a request can run it, no other workflow")
        num_calls = request.num_calls if segment.is_certain else request.num_calls + request.num_guessed
        if num_calls >= self._config.max_calls_per_request:
            raise self._too_many_calls(callee)
        if segment.is_certain:
            request.num_calls += 1
        else:
            request.num_guessed += 1
        if isinstance(callee, Workflow):
            return Task(request, callee, arguments, statics, segment)
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
                    self.waiting.wait(path, cell)
                for cell in unfetched:
                    self.waiting.fetch(path, cell)
            case Undecided() | Crowded():
                pass  # the decision tells its task when it is taken, and the consumer when it has taken parts
            case Raised(error=WorkflowLimitError()) if not path.segment.is_certain:
                self._branching.give_up(path)  # a guess must not make a request fail
            case Returned() | Raised():
                path.end = stop
                if not path.assumed:
                    self._finish(task, stop)

    def _finish(self, task: Task, end: End) -> None:
        """A task's coroutine has ended, and that rests on no guess of its own."""
        if task.callee.is_streaming:
            self._parts.end(task.request, end.error if isinstance(end, Raised) else self._check_determinism(task))
            return
        if isinstance(end, Raised):
            self._end_with_error(task, end.error)
            return
        if error := self._check_determinism(task):
            self._end_with_error(task, error)
            return
        task.paths = []
        task.state = TaskState.RETURNED
        task.result = end.result
        self._withdrawals.withdraw_unneeded(task)
        for argument in end.result:
            if argument.cell.state is CellState.PENDING:
                self.waiting.wait(task, argument.cell)
        if not task.num_awaited:
            self._complete(task)

    def _issue(self, path: Path) -> None:
        """Starts what a run newly asked for."""
        for point in path.opened:
            self._branching.watch(point)
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

    def _make_again(self, call: Call) -> None:
        """The lost inputs of a call are there again; or it is new, and runs another one again."""
        if not call.call_id:
            self._num_call_ids += 1
            call.call_id = self._num_call_ids
            call.order = call.segment.task.request.order
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
        if not call.segment.task.request.has_stored or self._has_inputs(call):
            self._submit(call)

    def _has_inputs(self, call: Call) -> bool:
        """Whether the stored inputs of a call can be read. If not, it waits: a guess until it is certain, others for them."""
        call.blocks = blocks_of(call.operands)
        if self._leases.are_there(call.blocks) and call.restores is None:
            return True
        if call.is_guess:
            self.call_deferred(call)
            return False
        return not self.recovery.await_inputs(call)

    def _is_missing(self, waiter: Waiter, cell: Cell) -> bool:
        task = waiter if isinstance(waiter, Task) else waiter.segment.task
        return self.recovery.await_cell(task.request, cell, cell)

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
        if task.segment is not None:
            self._task_ended(task.callee, self._now_ns - task.started_ns)
        self.waiting.settle(task.cell, tensors)
        if task.request.has_stored:
            self._leases.keep(task.request.kept, task.cell)

    def _end_with_error(self, task: Task, error: DyOrcError) -> None:
        task.paths = []
        task.result = ()
        self._withdrawals.withdraw_unneeded(task)
        task.state = TaskState.SETTLED
        self.waiting.fail(task.cell, error)

    def _end_stream(self, task: Task, error: DyOrcError | None) -> None:
        """All parts of a streaming task have been taken."""
        if error is not None:
            self._end_with_error(task, error)
        else:
            task.state = TaskState.SETTLED
            self.waiting.settle(task.cell, ())

    def _part_failed(self, part: Part, error: DyOrcError) -> None:
        self._parts.fail(part, error)

    @staticmethod
    def _is_part_due(part: Part) -> bool:
        stream = part.segment.task.request.stream
        return stream is not None and stream.is_due(part)

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
        if isinstance(stop, Blocked | Undecided | Crowded):
            error = path.nondeterministic("a value that it had not looked at")
            path.close()
            return error
        return stop.error if isinstance(stop, Raised) else None

    def _decide(self, point: BranchPoint) -> None:
        """The value of an open decision has come."""
        self._branching.decide(point, self._now_ns)
        task = point.segment.task
        if task.is_live and task.request.num_calls > self._config.max_calls_per_request:
            self._withdrawals.stop(task)  # together with what was guessed right it has become too much
            self._finish(task, Raised(self._too_many_calls(task.callee)))
        if task.request.stream is not None:
            self._parts.pump(task.request)

    def _tell_dependents(self, cell: Cell) -> None:
        dependents, cell.dependents = cell.dependents, []
        for dependent in dependents:
            if not isinstance(dependent, Call):
                self.waiting.tell(dependent)
            else:
                dependent.num_awaited -= 1
                is_due = not dependent.num_awaited or cell.state is CellState.FAILED
                if is_due and dependent.state is CallState.WAITING:
                    self._make_ready(dependent)
        producer = cell.producer
        if producer is not None:
            self._ended(producer)

    # Endings

    def _ended(self, entry: Entry) -> None:
        """A call or task has settled: count its effect, answer if it is the root."""
        request = request_of(entry)
        if request.has_stored:
            self._release.ended(entry, request)
        is_root = entry is request.root
        if is_root and not request.is_answered:
            cell = entry.cell
            if cell.error is not None:
                self._answer(request, FailRequest(request.request_id, cell.error))
            else:
                self._give_answer(request)
        elif not is_root and is_effect(entry):
            request.num_effects -= 1
            self._forget_if_done(request)

    def _give_answer(self, request: Request) -> None:
        """Answers, or first has those tensors of the answer restored that were lost."""
        root = request.root
        if root is None or (request.has_stored and self.recovery.await_cell(request, root.cell, request)):
            return
        tensors = root.cell.tensors
        request.is_untaken = request.has_stored and bool(blocks_of(tensors))
        request.num_answers += 1
        self._answer(request, AnswerRequest(request.request_id, tensors, self._end_story(request)))

    def _restored(self, request: Request, error: DyOrcError | None) -> None:
        """The lost tensors of an answer are there again, or will not be."""
        if error is None:
            self._give_answer(request)
        else:
            self._answer(request, FailRequest(request.request_id, error))

    def _tell(self, request: Request, event: str, program: str) -> None:
        if request.story is not None:
            request.story.add(self._now_ns, event, program=program)

    def _end_story(self, request: Request) -> Sequence[Step]:
        if request.story is None:
            return ()
        request.story.add(self._now_ns, "answered")
        return request.story.steps

    def _answer(self, request: Request, action: AnswerRequest | FailRequest) -> None:
        request.is_answered = True
        if request.stream is not None:
            self._parts.forget(request)
        if isinstance(action, FailRequest):
            request.is_untaken = False
        self._emit(action)
        self._forget_if_done(request)

    def _forget_if_done(self, request: Request) -> None:
        is_done = request.is_answered and not request.num_effects and not request.is_untaken
        if not is_done or self.requests.pop(request.request_id, None) is None:
            return
        root = request.root
        if request.has_effects and root is not None:
            self._withdrawals.abandon(root)  # an effect that failed early leaves behind what it did not wait for
        if request.restoring:
            self.recovery.forget(request)
        self._withdrawals.touched.pop(request, None)
        if request.kept:
            self._leases.let_all_go(request.kept)
        if root is not None:
            request.root = None
            root.cell.producer = None
            root.paths = []
            dismantle(root.journal)
            del root.journal


class _ClosedJournal:
    """The guide of a replay: everything has to be in the journal."""

    def make_entry(
        self, path: Path, callee: Program | Workflow, arguments: tuple[Argument, ...], statics: tuple[StaticValue, ...]
    ) -> Entry:
        raise InternalError("a replay asked for a call that its closed journal should have refused")

    def make_part(self, path: Path, arguments: tuple[Argument, ...]) -> Part | None:
        raise InternalError("a replay came to a part that its closed journal should have refused")

    def guess(self, path: Path, point: BranchPoint) -> tuple[Outcome] | None:
        return None
