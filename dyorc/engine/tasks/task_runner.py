"""Steps the workflows of all requests, and carries results to their waiters.

A request is a tree of tasks: its workflow, and the workflows that one calls. This half of the engine hands ready calls to a
`Dispatcher` and finds in `Turn.ended` how they ended.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from dyorc.authoring.program import Program
from dyorc.authoring.signature import StaticValue, check_all
from dyorc.authoring.workflow import Workflow
from dyorc.core.tensor import TensorRef
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.events import PartTaken
from dyorc.engine.interfaces import Dispatcher
from dyorc.engine.model.futures import FAILED, PENDING, Argument, Future, Outcome, Waiter
from dyorc.engine.model.journal import BranchPoint, Entry, StepInterrupted, StreamPart
from dyorc.engine.model.part_list import PartList
from dyorc.engine.model.program_call import Call, Feed
from dyorc.engine.model.request_tree import Needer, Request, Task, TaskState
from dyorc.engine.tasks.branching import Branching
from dyorc.engine.tasks.call_lifecycle import CallLifecycle
from dyorc.engine.tasks.determinism import DeterminismChecks
from dyorc.engine.tasks.early_release import EarlyRelease
from dyorc.engine.tasks.execution_paths import ExecutionPath, open_path
from dyorc.engine.tasks.part_sending import PartSender
from dyorc.engine.tasks.part_taking import PartTaker
from dyorc.engine.tasks.recovery import Recovery
from dyorc.engine.tasks.request_lifecycle import RequestLifecycle
from dyorc.engine.tasks.stops import Blocked, End, Raised, Returned
from dyorc.engine.tasks.stream_feeding import StreamFeeder
from dyorc.engine.tasks.task_endings import TaskEndings
from dyorc.engine.tasks.tensor_needs import Fetches, TensorNeeds
from dyorc.engine.tasks.trace_events import trace_decision, trace_immediate_outcome, trace_wait
from dyorc.engine.turn import (
    CallDeferred,
    CallDone,
    CallFailed,
    CallLate,
    CallPart,
    CallsDone,
    CallStarted,
    CallUnready,
    InputTaken,
    StepLimits,
)
from dyorc.errors import DefinitionError, DyOrcError, NotDeployedError, WorkflowError, WorkflowLimitError

_RETURNED: Final = TaskState.RETURNED


class TaskRunner:
    """Runs the tasks of all requests.

    Args:
        programs: What is deployed, by name.
        dispatcher: Takes ready calls.

    Attributes:
        answering: The requests themselves, from their arrival to their answer.
        fetches: Values being fetched for workflows to read.
        twins: Programs that run on the replicas of deployed ones of the same name.
        determinism: Runs the first tasks of each workflow again.
    """

    def __init__(self, context: EngineContext, programs: Mapping[str, Program], dispatcher: Dispatcher) -> None:
        turn, leases, config = context.turn, context.leases, context.config
        self._config = config
        self._limits = StepLimits(config.max_steps_per_turn)
        self._max_calls = config.max_calls_per_request
        self._turn = turn
        self._leases = leases
        self._programs = programs
        self.twins: set[Program] = set()
        self._dispatcher = dispatcher
        self._watch = context.host.step_monitor
        self._release = EarlyRelease(turn, leases)
        self.determinism = DeterminismChecks(config.max_determinism_checks)
        needs = TensorNeeds(turn, leases)
        self.fetches = Fetches(turn, leases, needs, config.max_attempts)
        self._feeder = StreamFeeder(context, dispatcher, needs)
        self._taking = PartTaker(turn, leases, self._release)
        self._endings = TaskEndings(turn, dispatcher, context.speculator, self._release, self._watch)
        self._branching = Branching(context, dispatcher, self.fetches, self._endings)
        self._recovery = Recovery(context, dispatcher, needs, self.fetches, self._release)
        self._calls = CallLifecycle(context, dispatcher, needs, self._recovery, self._taking)
        self._parts = PartSender(context, needs, self._release, self._endings, self._taking)
        self.answering = RequestLifecycle(context, needs, self._parts, self._recovery, self._endings)

    @property
    def requests(self) -> Mapping[int, Request]:
        """In flight, by id."""
        return self.answering.requests

    def part_taken(self, event: PartTaken) -> None:
        """Continues a stream after the tensors of a part were read, or were lost before."""
        request = self.requests.get(event.request_id)
        if request is not None and request.root is not None:
            self._parts.part_taken(request.root, event)

    def drain(self) -> None:
        """Carries results on and steps tasks until all of them wait, always taking the first non-empty list from the top."""
        turn = self._turn
        ended, ready, restored, settled = turn.ended, turn.ready, turn.restored, turn.settled
        resumed, runnable = turn.resumed, turn.runnable
        while True:
            if ended:
                end = ended.popleft()
                if isinstance(end, CallsDone):
                    self._calls.finish_all(end.calls, end.outputs)
                elif isinstance(end, CallDone):
                    self._calls.finish(end.call, end.outputs)
                else:
                    self._take_other(end)
            elif ready:
                self._calls.make_ready(ready.popleft())
            elif restored:
                self._notify_restored(*restored.popleft())
            elif settled:
                self._notify_dependents()
            elif resumed:
                self._resume(resumed.popleft())
            elif runnable:
                self._continue(runnable.popleft())
            elif turn.issued:
                calls, turn.issued = turn.issued, []
                self._calls.make_all_ready(calls)
            elif turn.restorations:
                self._recovery.advance(turn.restorations.popleft())
            elif turn.swept:
                request = next(iter(turn.swept))
                del turn.swept[request]
                self._recovery.sweep(request)
            elif turn.passed:
                self._release.release_passed()
            elif turn.releasable:
                for request in [each for each in turn.releasable if each.yielding and each not in turn.postponed]:
                    self._endings.end_unread(request)  # not while a run has yet to read: nothing holds its streams until then
                self._release.run()
            else:
                return

    def _take_other(self, end: CallFailed | CallLate | CallDeferred | CallUnready | CallStarted | CallPart | InputTaken) -> None:
        """Handles a call that the scheduler cannot run, or cannot run yet, and news of one that runs."""
        match end:
            case CallPart():
                if not self._taking.take(end) and (error := self._recovery.part_came(end)) is not None:
                    self._dispatcher.withdraw(end.call)
                    self._calls.fail(end.call, error)
            case CallStarted(call):
                self._feeder.start(call)
                self._calls.started(call)
            case InputTaken():
                self._feeder.taken(end)
            case CallFailed(call, error):
                self._calls.fail(call, error)
            case CallLate(call, error):
                self.answering.cancel(call.segment.task.request.request_id, error)
            case CallDeferred(call):
                self._calls.defer(call)
            case CallUnready(call):
                self._calls.take_back(call)

    def _resume(self, parts: PartList) -> None:
        """Lets the producer of a stream yield more."""
        if isinstance(parts.producer, Call):
            self._dispatcher.grant(parts.producer)
        elif parts.producer is not None:
            self._parts.resume(parts.producer)

    def _notify_restored(self, needer: Needer, error: DyOrcError | None) -> None:
        """Continues what needs lost tensors, which are there again, or cannot be restored."""
        match needer:
            case Call():
                self._calls.input_restored(needer, error)
            case Future():
                self.fetches.future_restored(needer, error)
            case StreamPart():
                self._turn.notify(needer)
                if error is not None:
                    self._parts.fail(needer, error)
            case Feed():
                self._turn.notify(needer)
                if error is not None:
                    self._feeder.end(needer, error)
            case Request():
                self.answering.answer_restored(needer, error)

    def _notify_dependents(self) -> None:
        """Notifies what waits for futures that have settled, up to the first that gives more urgent work."""
        turn = self._turn
        ended, ready, restored, settled, runnable = turn.ended, turn.ready, turn.restored, turn.settled, turn.runnable
        complete: list[Call] = []
        while settled and not (ended or ready or restored):
            future = settled.popleft()
            if future.dependents:
                has_failed = future.state is FAILED
                dependents, future.dependents = future.dependents, []
                for dependent in dependents:
                    dependent.num_awaited -= 1
                    if not isinstance(dependent, Call):
                        if not dependent.num_awaited:
                            runnable.append(dependent)
                    elif has_failed or not dependent.num_awaited:
                        complete.append(dependent)
            producer = future.producer
            if producer is not None and producer.future is future:  # a part ends nothing
                if isinstance(producer, Call) and not producer.streams and producer.parts is None:
                    request = producer.segment.task.request
                    if not (request.has_stored or request.num_effects):
                        continue
                self._entry_ended(producer)
        if complete:
            self._calls.make_all_ready(complete)

    def _entry_ended(self, entry: Entry) -> None:
        """Handles the end of a call or task, after its dependents."""
        request = entry.request if isinstance(entry, Task) else entry.segment.task.request
        if entry.streams:
            self._release.drop_arguments(entry, request)
            if request.restoring:
                self._turn.swept[request] = None  # perhaps it has not read all of them
        elif request.has_stored:
            self._release.drop_arguments(entry, request)
        if entry.parts is not None:
            request.end_yielding(entry)
        if entry is request.root:
            self.answering.root_ended(request)
        elif request.num_effects:
            self.answering.effect_ended(request, entry)

    def _continue(self, waiter: Waiter) -> None:
        """Continues a waiter that has everything it waited for. Runs user code, so a watch may interrupt it."""
        task = waiter if isinstance(waiter, Task) else waiter.segment.task
        request = task.request
        num_steps, watch = self._turn.num_steps, self._watch
        num_steps[request] = number = num_steps.get(request, 0) + 1
        if number > self._limits.any_case:
            if number > self._limits.per_request or self._turn.num_shared >= self._limits.shared:
                self._turn.postponed.setdefault(request, []).append(waiter)
                return
            self._turn.num_shared += 1
        try:
            if watch is not None:
                watch.begin(task.name)
            if isinstance(waiter, ExecutionPath):
                self._step(waiter)
            elif isinstance(waiter, BranchPoint):
                self._decide(waiter)
            elif isinstance(waiter, Task):
                self._complete(waiter)
            elif isinstance(waiter, StreamPart):
                self._parts.wake(waiter)
            elif isinstance(waiter, Feed):
                self._feeder.go_on(waiter)
            if watch is not None:
                watch.end()
        except StepInterrupted:
            if watch is not None:
                self.answering.cancel(request.request_id, WorkflowError(watch.abort()))

    # The guide of paths

    def guess(self, path: ExecutionPath, point: BranchPoint) -> tuple[Outcome] | None:
        """Returns the outcome that a path assumes for an open decision."""
        guess = self._branching.guess(path, point)
        request = point.segment.task.request
        if guess is not None and request.pinned:
            point.unheld = self._release.unheld(request)
        return guess

    def record_decision(self, point: BranchPoint) -> None:
        """Records a decision of a recorded request, when it is reached and again if it is taken at once."""
        if (story := point.segment.task.request.context.story) is not None:
            record = trace_immediate_outcome if point.is_resolved else trace_decision
            record(story, point, self._turn.now_ns)

    def read_on(self, parts: PartList) -> None:
        """Lets a stream go on, because more of it was read than ever before."""
        self._turn.resumed.append(parts)

    def make_part(self, path: ExecutionPath, arguments: tuple[Argument, ...]) -> StreamPart | None:
        """Returns a part that is new to a task's journal; None if the path has to wait until others were taken."""
        return self._parts.make_part(path, arguments)

    def make_entry(
        self, path: ExecutionPath, callee: Program | Workflow, arguments: tuple[Argument, ...], statics: tuple[StaticValue, ...]
    ) -> Entry:
        """Returns an entry for a call or task that is new to a journal.

        Raises:
            WorkflowError: If the request may not make it.
        """
        segment = path.segment
        request = segment.task.request
        if isinstance(callee, Workflow):
            _check_programs(callee)
        elif self._programs.get(callee.name) is not callee and callee not in self.twins:
            raise NotDeployedError(
                f"program {callee.name!r} is not deployed; deployed are {sorted(self._programs)}. "
                f"If the workflow reaches it in a way that cannot "
                f"be read from its code, declare it: @dyorc.workflow(programs=[...])"
            )
        if segment.is_certain:
            if request.num_calls >= self._max_calls:
                raise self._too_many_calls(callee)
            request.num_calls += 1
        else:
            if request.num_calls + request.num_guessed >= self._max_calls:
                raise self._too_many_calls(callee)
            request.num_guessed += 1
        if isinstance(callee, Workflow):
            task = Task(request, callee, arguments, statics, segment)
            if task.parts is not None:
                request.begin_yielding(task, task.parts)
            return task
        call = Call(callee, arguments, statics, segment)
        if callee.signature.outputs.has_residents:
            call.future.resident_holds = {at: object() for at in callee.signature.outputs.residents}
        if callee.is_streaming:
            call.parts = PartList(call)
            request.begin_yielding(call, call.parts)
        return call

    def make_entries(
        self,
        path: ExecutionPath,
        callee: Program | Workflow,
        rows: Sequence[tuple[Argument, ...]],
        statics: tuple[StaticValue, ...],
    ) -> list[Entry] | None:
        """Returns an entry for each of several calls or tasks that are new to a journal; None if one may be refused, or they
        yield or leave residents."""
        segment = path.segment
        request = segment.task.request
        number, num_before = len(rows), request.num_calls + (0 if segment.is_certain else request.num_guessed)
        if callee.is_streaming or callee.signature.outputs.has_residents or num_before + number > self._max_calls:
            return None
        if isinstance(callee, Workflow):
            try:
                _check_programs(callee)
            except WorkflowError:
                return None
            entries: list[Entry] = [Task(request, callee, arguments, statics, segment) for arguments in rows]
        elif self._programs.get(callee.name) is callee or callee in self.twins:
            entries = [Call(callee, arguments, statics, segment) for arguments in rows]
        else:
            return None
        if segment.is_certain:
            request.num_calls += number
        else:
            request.num_guessed += number
        return entries

    def _too_many_calls(self, callee: Program | Workflow) -> WorkflowLimitError:
        return WorkflowLimitError(
            f"the request made more than {self._max_calls} calls (engine.max_calls_per_request), the last of {callee.name!r}"
        )

    # Steps

    def _step(self, path: ExecutionPath) -> None:
        if path.is_closed:
            return
        task = path.segment.task
        if path.end is not None:
            self._finish(task, path.end)
            return
        num_parts = path.num_parts
        stop = path.run(self)
        if task.request.yielding:
            self._turn.releasable[task.request] = None  # the run may have dropped a stream
        self._issue(path)
        if isinstance(stop, Returned | Raised):
            if isinstance(stop, Raised) and isinstance(stop.error, WorkflowLimitError) and not path.segment.is_certain:
                self._branching.give_up(path)  # a guess must not make a request fail
            else:
                path.end = stop
                if not path.assumed:
                    self._finish(task, stop)
        elif isinstance(stop, Blocked):
            for future in stop.pending:
                future.dependents.append(path)
                if future.producer is not None and future.producer.parts is not None:
                    self._turn.want(future)
            path.num_awaited += len(stop.pending)
            for future in stop.unfetched:
                self.fetches.fetch(path, future)
        # otherwise the decision continues its task, or the consumer by taking parts
        if path.num_parts > num_parts:
            self._parts.pump(task)

    def _issue(self, path: ExecutionPath) -> None:
        """Starts what a run newly asked for."""
        opened = path.opened
        if opened:
            path.opened = []
        for point in opened:
            self._branching.await_value(point)
        if path.issued:
            calls: list[Call] = []
            for entry in path.issued:
                if isinstance(entry, Task):
                    if not entry.callee.is_pure:
                        entry.request.add_effect()
                    entry.started_ns = self._turn.now_ns
                    open_path(self._turn, entry)
                else:
                    if not entry.callee.options.pure:
                        path.segment.task.request.add_effect()
                    calls.append(entry)
            path.issued.clear()
            if calls:
                self._calls.issue(calls)
        if opened and (story := path.segment.task.request.context.story) is not None:
            for point in opened:
                trace_wait(story, point)

    def _finish(self, task: Task, end: End) -> None:
        """Ends a task whose coroutine has ended for certain, not under a guess."""
        error = end.error if isinstance(end, Raised) else self.determinism.check(task)
        if task.callee.is_streaming:
            self._parts.end_stream(task, error)
        elif error is not None:
            self._endings.fail(task, error)
        elif isinstance(end, Returned):
            self._endings.finish(task, end.result)
            for argument in end.result:
                if argument.future.state is PENDING:
                    argument.future.add_waiter(task)
            if not task.num_awaited:
                self._complete(task)

    def _complete(self, task: Task) -> None:
        """Settles a task once all tensors of its result are there, or one has failed."""
        if task.state is not _RETURNED:
            return
        for argument in task.result:
            if argument.future.error is not None:
                self._endings.fail(task, argument.future.error)
                return
        try:
            resolved: list[TensorRef] = []
            for argument in task.result:
                resolved.append(argument.resolve() if argument.views else argument.future.tensors[argument.field])
            tensors = tuple(resolved)
            check_all(task.callee.signature.outputs.tensors, tensors, task.callee.returned)
        except Exception as error:  # a view or a shape that does not fit fails this task alone
            self._endings.fail(task, WorkflowError(f"{error}"))
            return
        if task.segment is not None:
            self._dispatcher.task_ended(task.callee, self._turn.now_ns - task.started_ns)
        self._endings.settle(task, tensors)
        if task.request.has_stored:
            self._leases.pin(task.request.pinned, task.future)

    def _decide(self, point: BranchPoint) -> None:
        """Takes an open decision whose value has come."""
        self._branching.decide(point)
        task = point.segment.task
        if task.is_live and task.request.num_calls > self._max_calls:
            self._endings.stop(task)  # with the calls that were guessed right, the request has made too many
            self._finish(task, Raised(self._too_many_calls(task.callee)))
        if task.stream is not None and point.is_followed:
            self._parts.pump(task)  # the parts behind it are certain now


def _check_programs(callee: Workflow) -> None:
    """Has the programs of a workflow found, once, where an error is its caller's.

    Raises:
        WorkflowError: If two of them have the same name.
    """
    try:
        _ = callee.is_pure
    except DefinitionError as error:
        raise WorkflowError(f"{error}") from None
