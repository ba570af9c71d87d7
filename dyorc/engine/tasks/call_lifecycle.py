"""Calls on the tasks' side: made ready for the scheduler, and taken back when they have ended."""

from collections.abc import Iterable, Sequence
from typing import Final

from dyorc.authoring.call_cost import CallCost
from dyorc.authoring.program import Program
from dyorc.core.tensor import DType, TensorRef, blocks_of
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.interfaces import Dispatcher
from dyorc.engine.model.futures import FAILED, PENDING
from dyorc.engine.model.journal import StepInterrupted
from dyorc.engine.model.program_call import Call, CallState, settle_all
from dyorc.engine.tasks.part_taking import PartTaker
from dyorc.engine.tasks.recovery import Recovery
from dyorc.engine.tasks.tensor_needs import TensorNeeds
from dyorc.engine.tasks.trace_events import trace_call, trace_end, trace_inputs
from dyorc.errors import DyOrcError, InvalidInputError, ProgramError, SizeLimitError

_WAITING: Final = CallState.WAITING
_RUNNING: Final = CallState.RUNNING
_WITHOUT_PLACE = (CallState.WAITING, CallState.GUESSED, CallState.QUEUED)


class CallLifecycle:
    """Hands over calls whose inputs are there, and takes their results."""

    def __init__(
        self, context: EngineContext, dispatcher: Dispatcher, needs: TensorNeeds, recovery: Recovery, parts: PartTaker
    ) -> None:
        self._turn = context.turn
        self._leases = context.leases
        self._host = context.host
        self._watch = context.host.step_monitor
        self._dispatcher = dispatcher
        self._needs = needs
        self._recovery = recovery
        self._parts = parts
        self._num_calls = 0

    def issue(self, calls: Iterable[Call]) -> None:
        """Issues calls that are new to their journal."""
        issued = self._turn.issued
        for call in calls:
            self._num_calls = call.call_id = self._num_calls + 1
            if not call.segment.is_certain:
                call.is_guess = call.segment.probability() < 1
                if not call.callee.options.pure or call.callee.signature.consumed:
                    call.awaits_commit = True
                    call.num_awaited += 1
            elif (observer := self._host.observer) is not None:
                observer.called(call.segment.task.request.request_id, call.callee.name, self._turn.now_ns)
            if (story := call.context.story) is not None:
                trace_call(story, call, self._turn.now_ns)
            has_failed = False
            for argument in call.arguments:
                if argument.future.state is PENDING:
                    argument.future.dependents.append(call)
                    call.num_awaited += 1
                elif argument.future.state is FAILED:
                    has_failed = True
            if has_failed or not call.num_awaited:
                issued.append(call)

    def make_ready(self, call: Call) -> None:
        """Submits a call that has all its inputs, unless lost ones have to be restored first. Fails it if an input has failed."""
        if self._prepare(call, None):
            self._dispatcher.submit(call)

    def make_all_ready(self, calls: Sequence[Call]) -> None:
        """Does the same for several calls. Those of one program are submitted together."""
        if len(calls) == 1:
            self.make_ready(calls[0])
            return
        groups: dict[Program, list[Call]] = {}
        program: Program | None = None
        group: list[Call] = []
        for call in calls:
            if call.callee is not program:
                program = call.callee
                group = groups.setdefault(program, [])
            group.append(call)
        for group in groups.values():
            ready: list[Call] = []
            last: Call | None = None
            for call in group:
                if self._prepare(call, last):
                    ready.append(call)
                    last = call
            if ready:
                self._dispatcher.submit_all(ready)

    def _prepare(self, call: Call, like: Call | None) -> bool:
        """Returns whether to submit a call now.

        Args:
            like: One of the same program that was prepared before. What equal shapes have in common is taken from it.
        """
        if call.state is not _WAITING:
            return False
        if not call.call_id:
            self._num_calls = call.call_id = self._num_calls + 1  # it repeats another call
            if (story := call.context.story) is not None:
                trace_call(story, call, self._turn.now_ns)
        for argument in call.arguments:
            if argument.future.error is not None:
                self.fail(call, argument.future.error)
                return False
        if call.streams and self._awaits_starts(call):
            return False
        program = call.callee
        try:
            operands: list[TensorRef] = []
            for argument in call.arguments:
                tensor = argument.future.tensors[argument.field]
                for index in argument.views:
                    tensor = tensor.view(index)
                operands.append(tensor)
            call.operands = tuple(operands)
            is_alike = like is not None and call.statics is like.statics
            if like is not None and is_alike:
                for mine, theirs in zip(operands, like.operands, strict=True):
                    if mine.dtype is not theirs.dtype or mine.shape != theirs.shape:
                        is_alike = False
            if call.chain:
                call.batch_key = call.call_id, ()  # it runs alone
            elif like is not None and is_alike:
                call.batch_key = like.batch_key
                call.cost = like.cost
            else:
                program.signature.check_inputs(call.operands)
                call.batch_key = program.batch_keys.key(call.operands, call.statics)
                if program.call_cost is not None:
                    call.cost = self._cost_of(call, program.call_cost)
        except Exception as error:  # a view or a shape that does not fit fails this call alone
            self.fail(call, _refusal(call, error))
            return False
        if call.trace is not None:
            trace_inputs(call, call.trace)
        if call.segment.task.request.has_stored and not self._has_inputs(call):
            return False
        if program.signature.takes_residents and not call.chain:
            return self._is_in_one_process(call)
        if call.restores is not None:
            call.process = self._dispatcher.home_of(call)
        return True

    @staticmethod
    def _awaits_starts(call: Call) -> bool:
        """Makes a call wait that takes streams of calls which have no place yet. Returns whether there is one.

        With a place before them, it would keep others from it and have nothing to read: two such calls could wait for each other.
        """
        for stream in call.streams:
            producer = stream.parts.producer
            if isinstance(producer, Call) and producer.state in _WITHOUT_PLACE and not stream.awaits_start:
                stream.awaits_start = True
                call.num_awaited += 1
                if producer.state is CallState.QUEUED:
                    producer.segment.task.request.await_place(producer)
        return call.num_awaited > 0

    def started(self, call: Call) -> None:
        """Continues the calls that take the stream of one that has a place now, or will never have one."""
        for stream in () if call.parts is None else call.parts.taken_by:
            taker = stream.taker
            if stream.awaits_start and isinstance(taker, Call):
                stream.awaits_start = False
                taker.num_awaited -= 1
                if not taker.num_awaited:
                    self._turn.ready.append(taker)

    def _cost_of(self, call: Call, cost: CallCost) -> float:
        """Has the user's function compute the cost of a call, within the time that a step of a workflow may take.

        Raises:
            ProgramError: If that fails.
        """
        watch = self._watch
        if watch is None:
            return cost.compute(call.operands, call.statics)
        is_own = not watch.is_measuring  # else it is part of the step that made the call
        if is_own:
            watch.begin(call.segment.task.name)
        watch.charge(call.callee.name)
        try:
            return cost.compute(call.operands, call.statics)
        except ProgramError as error:
            if isinstance(error.__cause__, StepInterrupted):
                text = f"the function that computes the cost of a call {watch.interruption()}: all requests wait while it runs"
                raise ProgramError(call.callee.name, "TimeoutError", text) from None
            raise
        finally:
            watch.charge("")
            if is_own:
                watch.end()

    def _has_inputs(self, call: Call) -> bool:
        """Returns whether the stored inputs of a call can be read. If not, a guess waits until it is certain, other calls until
        they are restored.
        """
        call.blocks = blocks_of(call.operands)
        if self._leases.are_there(call.blocks) and call.restores is None:
            return True
        if call.is_guess:
            self.defer(call)
            return False
        residents = [tensor for tensor in call.operands if tensor.dtype is DType.RESIDENT]
        if len(residents) > 1 and not call.chain:
            there = [tensor for tensor in residents if self._leases.is_there((tensor.holder, tensor.block))]
            if 0 < len(there) < len(residents):
                self._dispatcher.bring_together(call, there)  # the lost ones are made again beside these
        return not self._needs.await_inputs(call)

    def _is_in_one_process(self, call: Call) -> bool:
        """Binds a call to the process that holds its residents. If there are several, those outside the home of its task are
        given up, and made again there; a guess waits for that until it is certain.

        A resident that is made again is made at home, even if what it is made from lies elsewhere: else it would come back to the
        place from which it was moved.
        """
        residents = [tensor for tensor in call.operands if tensor.dtype is DType.RESIDENT]
        call.process = residents[0].holder
        is_together = len(residents) == 1 or all(tensor.holder == call.process for tensor in residents)
        if is_together and (call.restores is None or self._dispatcher.home_of(call) in ("", call.process)):
            return True
        if call.is_guess:
            self.defer(call)
            return False
        call.process = self._dispatcher.bring_together(call, residents)
        self._dispatcher.evict([(tensor.holder, tensor.block) for tensor in residents if tensor.holder != call.process])
        return not self._needs.await_inputs(call)

    def input_restored(self, call: Call, error: DyOrcError | None) -> None:
        """Counts a lost input of a waiting call that is there again, or will not be."""
        if call.state is not _WAITING:
            return
        call.num_awaited -= 1
        if error is not None:
            self.fail(call, error)
        elif not call.num_awaited:
            self.make_ready(call)

    # Ends

    def finish(self, call: Call, outputs: tuple[TensorRef, ...]) -> None:
        """Settles a call that ran."""
        if call.state is not _RUNNING:  # it is not needed, or has failed before its program ended
            self._leases.discard(blocks_of(outputs))
            return
        call.settle()
        if (story := call.context.story) is not None and call.trace is not None:
            trace_end(story, call.trace, None, self._turn.now_ns)
        if call.restores is not None:
            self._recovery.call_done(call.restores, outputs)
            return
        request = call.segment.task.request
        for output in outputs:
            if output.block:
                request.has_stored = True
                self._leases.pin_new(request.pinned, call.future, blocks_of(outputs))
                if call.future.resident_holds is not None:
                    request.keeping[call.future] = None
                break
        if call.parts is not None:
            self._parts.end(call.parts, None)
            self._recovery.reconsider(call)
        self._turn.settle(call.future, outputs)

    def finish_all(self, calls: Sequence[Call], outputs: Sequence[tuple[TensorRef, ...]]) -> None:
        """Settles the calls of a batch that ran."""
        if len(calls) == 1:
            self.finish(calls[0], outputs[0])
            return
        plain: list[Call] = []
        values: list[tuple[TensorRef, ...]] = []
        for call, tensors in zip(calls, outputs, strict=True):
            is_plain = call.state is _RUNNING and call.context.story is None and call.restores is None
            if is_plain:
                for tensor in tensors:
                    if tensor.block:
                        is_plain = False
                        break
            if is_plain:
                plain.append(call)
                values.append(tensors)
            else:
                self.finish(call, tensors)
        settle_all(plain)
        self._turn.settle_all(plain, values)

    def fail(self, call: Call, error: DyOrcError) -> None:
        """Settles a call that cannot run."""
        if call.state is CallState.WITHDRAWN:
            return
        call.settle()
        if (story := call.context.story) is not None and call.trace is not None:
            trace_end(story, call.trace, error, self._turn.now_ns)
        if call.restores is not None:
            if call.chain and isinstance(error, ProgramError):
                self._recovery.rebuild_failed(call.restores, call, error)
            else:
                self._recovery.fail(call.restores, error)
            return
        if call.parts is not None:
            self._parts.end(call.parts, error)
            self._recovery.reconsider(call)
            self.started(call)
        self._turn.fail(call.future, error)

    def defer(self, call: Call) -> None:
        """Puts off a guess that failed on its replica, or whose inputs were lost, until it is certain."""
        if call.state is CallState.WITHDRAWN:
            return
        call.wait()
        call.order = call.context.order
        call.awaits_commit = True
        call.num_awaited += 1

    def take_back(self, call: Call) -> None:
        """Takes back a call that left its queue or batch because tensors were lost, perhaps its inputs."""
        if call.state is CallState.WITHDRAWN:
            return
        if call.is_guess:
            self.defer(call)
            return
        call.wait()
        self.make_ready(call)


def _refusal(call: Call, error: Exception) -> DyOrcError:
    """Returns the error of a call whose inputs do not fit: the client's if its tensor is too large, else one that names
    the workflow that made it."""
    if isinstance(error, SizeLimitError) and call.is_from_client(error.input_at):
        return error
    if isinstance(error, ProgramError):
        return error
    name, kind, message = call.callee.name, type(error).__name__, str(error)
    shown = message.removeprefix(f"program {name!r}: ") if isinstance(error, InvalidInputError) else f"{kind}: {message}"
    workflow = call.segment.task.callee.name
    text = f"workflow {workflow!r} called program {name!r} with inputs that do not fit, so it did not run: {shown}"
    return ProgramError(name, kind, message, text=text)
