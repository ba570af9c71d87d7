"""Requests from their arrival to their answer."""

from collections.abc import Iterator

from dyorc.core.request import counted_name
from dyorc.core.tensor import blocks_of
from dyorc.engine.actions import AnswerRequest, EffectFailed, FailRequest
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.events import AnswerTaken, RequestArrived
from dyorc.engine.model.futures import Argument, Future
from dyorc.engine.model.journal import Entry
from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.model.request_context import QueueOrder, RequestContext
from dyorc.engine.model.request_tree import Request, Task, TaskState
from dyorc.engine.model.tree_walks import dismantle, is_effect, live_effects
from dyorc.engine.tallies import EffectsGivenUp
from dyorc.engine.tasks.execution_paths import open_path
from dyorc.engine.tasks.part_sending import PartSender
from dyorc.engine.tasks.recovery import Recovery
from dyorc.engine.tasks.task_endings import TaskEndings
from dyorc.engine.tasks.tensor_needs import TensorNeeds
from dyorc.engine.tasks.trace_events import trace_failure
from dyorc.engine.timers import Timer, TimerKind
from dyorc.errors import DeadlineError, DyOrcError, EffectLostError, InternalError, ReplicaLostError, RequestCancelledError

_NOT_BEGUN = "not_begun"
"""Of an effect that a server gives up before it has begun, where a lost one has the code of its error."""


class RequestLifecycle:
    """Takes requests in, answers them, and forgets them once all their work is done.

    Attributes:
        requests: In flight, by id.
        deadlines: The timers of unanswered requests.
    """

    def __init__(
        self, context: EngineContext, needs: TensorNeeds, parts: PartSender, recovery: Recovery, endings: TaskEndings
    ) -> None:
        self._context = context
        self._turn = context.turn
        self._leases = context.leases
        self._statistics = context.host.statistics
        self._host = context.host
        self._needs = needs
        self._parts = parts
        self._recovery = recovery
        self._endings = endings
        self.requests: dict[int, Request] = {}
        self.deadlines: dict[int, Timer] = {}
        self._num_arrived = 0
        self._max_overtaking_ns = int(context.config.max_overtaking_s * 1e9)

    def workflows_in_flight(self) -> Iterator[str]:
        """Yields the workflow's name of every request that has not been answered."""
        for request_id in self.deadlines:
            yield self.requests[request_id].context.record.name

    def start(self, event: RequestArrived, deadline_ns: int) -> None:
        """Takes a request in. Nothing runs yet."""
        self._num_arrived += 1
        workflow, terms, now_ns = event.workflow, event.terms, self._turn.now_ns
        order = QueueOrder.of_request(terms, now_ns, deadline_ns, self._num_arrived, self._max_overtaking_ns)
        speculator = self._context.speculator
        budget, of_round = speculator.budget(workflow), speculator.round(workflow, now_ns)
        record, request_id = self._statistics.of_workflow(counted_name(workflow.name, terms)), event.request_id
        context = RequestContext(
            order,
            terms.tenant,
            terms.weight,
            budget,
            record,
            of_round,
            request_id,
            event.identity,
            event.story,
            terms,
            event.facts,
            keeper=event.keeper,
            may_lag=deadline_ns > now_ns + self._max_overtaking_ns // 3,
        )
        request = Request(request_id, context, now_ns)
        request.waits_for_effects = workflow.wait_for_effects or terms.waits_for_effects
        arguments = tuple([Argument(Future.ready(context, tensor), 0) for tensor in event.inputs])
        for tensor, argument in zip(event.inputs, arguments, strict=True):
            if tensor.block:
                request.has_stored = True
                self._leases.pin_new(request.pinned, argument.future, blocks_of((tensor,)))
        request.root = root = Task(request, workflow, arguments, event.statics)
        self.requests[request_id] = request
        if (observer := self._host.observer) is not None:
            observer.arrived(request_id, workflow.name, now_ns)
        self.deadlines[request_id] = self._context.timers.set(deadline_ns, TimerKind.DEADLINE, request_id)
        root.started_ns = now_ns
        open_path(self._turn, root)

    def cancel(self, request_id: int, error: DyOrcError) -> None:
        """Fails a request from outside. Calls that were not dispatched do not run.

        One that is answered, and whose answer was lost, may be asked again: its effects that are still to come do not happen.
        """
        request = self.requests.get(request_id)
        if request is None or request.root is None:
            return
        if not request.is_answered:
            self._endings.abandon(request.root)
            self._answer(request, FailRequest(request_id, error))
        elif request.num_effects:
            self._abandon_effects(request, request.root)

    def _abandon_effects(self, request: Request, root: Task) -> None:
        name, lost = request.context.record.name, EffectLostError("the answer was lost before its client had it")
        for entry in list(live_effects(root)):
            if isinstance(entry, Call):
                request.context.record.count_effect_failures(lost.code, 1)
                self._turn.actions.append(EffectFailed(request.request_id, name, entry.callee.name, lost))
        self._endings.abandon(root)
        self._forget_if_done(request)

    def root_ended(self, request: Request) -> None:
        """Answers or fails a request whose workflow has settled, unless its answer has to wait for effects."""
        if request.root is None or request.is_answered:
            return
        error = request.root.future.error
        if error is None and request.waits_for_effects:
            if request.num_effects:
                return
            if failures := request.unreported_failures():
                error = failures[0][1]
                request.failed_effects = [entry for entry, _ in failures[1:]]
        if error is not None:
            self._answer(request, FailRequest(request.request_id, error))
        else:
            self._give_answer(request)

    def effect_ended(self, request: Request, entry: Entry) -> None:
        """Counts a settled call or task below the root. After its last effect, a request that waits for effects is answered."""
        if not is_effect(entry):
            return
        request.num_effects -= 1
        if entry.future.error is not None:
            request.failed_effects.append(entry)
        root = request.root
        if request.waits_for_effects and root is not None and root.state is TaskState.SETTLED and not request.num_effects:
            self.root_ended(request)
        self._forget_if_done(request)

    def answer_restored(self, request: Request, error: DyOrcError | None) -> None:
        """Answers a request whose lost tensors have been restored, or fails it if they cannot be."""
        if error is None:
            self._give_answer(request)
        else:
            self._answer(request, FailRequest(request.request_id, error))

    def answer_taken(self, event: AnswerTaken) -> None:
        """Ends a request whose answer was read; if tensors were lost before, answers again."""
        request = self.requests.get(event.request_id)
        if request is None or not request.is_untaken:
            return
        if not event.lost:
            request.is_untaken = False
            self._forget_if_done(request)
        elif request.num_answers < self._context.config.max_attempts:
            self._give_answer(request)
        else:
            error = ReplicaLostError(f"the answer was lost {request.num_answers} times before it was read")
            self._answer(request, FailRequest(request.request_id, error))

    def pending_effects(self) -> dict[str, int]:
        """Returns how many effects of answered requests are pending, by workflow."""
        pending: dict[str, int] = {}
        for name, calls in self._effects_of_answered():
            pending[name] = pending.get(name, 0) + max(1, len(calls))  # a workflow may not have come to its calls
        return pending

    def _effects_of_answered(self) -> Iterator[tuple[str, list[Call]]]:
        """Yields each answered request that has pending effects: its workflow's name, and their calls, as far as it has come."""
        for request in self.requests.values():
            if request.is_answered and request.num_effects and request.root is not None:
                calls = [entry for entry in live_effects(request.root) if isinstance(entry, Call)]
                yield request.context.record.name, calls

    def give_up(self) -> dict[str, EffectsGivenUp]:
        """Counts unanswered requests as failed, and pending effects as lost or as not begun, because the engine is given up.

        Returns:
            The pending effects, by workflow. Those have begun whose calls run, or ran before.
        """
        effects: dict[str, EffectsGivenUp] = {}
        for name, calls in self._effects_of_answered():
            num_begun = sum([call.state is CallState.RUNNING or call.num_attempts + call.num_losses > 0 for call in calls])
            before = effects.get(name, EffectsGivenUp(0, 0))
            num_not_begun = max(1, len(calls)) - num_begun
            effects[name] = EffectsGivenUp(before.num_begun + num_begun, before.num_not_begun + num_not_begun)
        for name, given_up in effects.items():
            record = self._statistics.of_workflow(name)
            for outcome, number in ((EffectLostError.code, given_up.num_begun), (_NOT_BEGUN, given_up.num_not_begun)):
                if number:
                    record.count_effect_failures(outcome, number)
        for request in self.requests.values():
            if (observer := self._host.observer) is not None:
                observer.ended(request.request_id, self._turn.now_ns)
            if not request.is_answered:
                name, now_ns = request.context.record.name, self._turn.now_ns
                self._statistics.count_unanswered(name, InternalError.code, now_ns - request.arrived_ns, now_ns)
        return effects

    def _give_answer(self, request: Request) -> None:
        """Answers, unless lost tensors of the answer have to be restored first."""
        root = request.root
        if root is None or (request.has_stored and self._needs.await_future(request, root.future, request)):
            return
        tensors = root.future.tensors
        request.is_untaken = request.has_stored and bool(blocks_of(tensors))
        request.num_answers += 1
        self._answer(request, AnswerRequest(request.request_id, tensors, request.num_effects > 0))

    def _answer(self, request: Request, action: AnswerRequest | FailRequest) -> None:
        request.end()
        if request.root is not None and request.root.stream is not None:
            self._parts.forget(request.root)
        error = action.error if isinstance(action, FailRequest) else None
        if error is not None:
            request.is_untaken = False
        if (story := request.context.story) is not None:
            if error is not None and request.root is not None:
                trace_failure(story, request.root, error, self._turn.now_ns)
            story.end(self._turn.now_ns, is_answered=error is None)
        timer = self.deadlines.pop(request.request_id, None)
        if timer is not None:  # otherwise this repeats the answer
            self._context.timers.cancel(timer)
            self._count(request, error)
            if (keeper := request.context.keeper) is not None:
                keeper.ended(error, self._turn.now_ns)
        self._turn.actions.append(action)
        self._forget_if_done(request)

    def _count(self, request: Request, error: DyOrcError | None) -> None:
        record, now_ns = request.context.record, self._turn.now_ns
        took_ns = now_ns - request.arrived_ns
        request.context.round.add_time(took_ns)
        if error is None:
            record.count_answer(took_ns, now_ns)
            if (placer := self._context.placer) is not None:
                placer.request_answered(request.context)
        elif isinstance(error, DeadlineError | RequestCancelledError):
            self._statistics.count_unanswered(record.name, error.code, took_ns, now_ns)
        else:
            record.count_failure(error.code, took_ns, now_ns)

    def _forget_if_done(self, request: Request) -> None:
        is_done = request.is_answered and not request.num_effects and not request.is_untaken
        if not is_done or self.requests.pop(request.request_id, None) is None:
            return
        if (observer := self._host.observer) is not None:
            observer.ended(request.request_id, self._turn.now_ns)
        root = request.root
        if request.context.tried and root is not None and root.future.error is None:
            self._turn.harmless.append(request.context)
        if (keeper := request.context.keeper) is not None:
            keeper.keep(request)
        if request.failed_effects:
            self._report_failures(request)
        if (request.has_effects or request.yielding) and root is not None:
            # An effect that failed early leaves work behind that it did not wait for, and a call that has read enough of a
            # stream the producer of the rest.
            self._endings.abandon(root)
            for entry in list(request.yielding):
                request.end_yielding(entry)
            request.failed_effects = []
            request.raised = []  # its tasks refer to the request: only the garbage collector would find them
        if request.restoring:
            self._recovery.forget(request)
        if self._turn.swept:
            self._turn.swept.pop(request, None)
        if request.pinned:
            self._leases.unpin_all(request.pinned)
        if root is not None:
            request.root = None
            root.future.producer = None
            dismantle(root.journal)
            root.forget_runs()

    def _report_failures(self, request: Request) -> None:
        """Reports effects that have failed unnoticed."""
        record = request.context.record
        for entry, error in request.unreported_failures():
            record.count_effect_failures(error.code, 1)
            self._turn.actions.append(EffectFailed(request.request_id, record.name, entry.callee.name, error))
