"""Replays histories on a workflow: the engine runs it, and its calls get the results that the history has.

Under a virtual clock: a call takes as long as it took when the history was recorded, its wait for a replica included. For one
thread.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Self

from dyorc.authoring.program import Program
from dyorc.authoring.signature import Signature, StaticSpec, StaticValue
from dyorc.authoring.workflow import Workflow, as_model
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.core.arrays import inline
from dyorc.core.request import NO_DEADLINE_NS, RequestFacts, Terms
from dyorc.core.tensor import TensorRef
from dyorc.engine.actions import (
    Action,
    AnswerPart,
    AnswerRequest,
    CancelBatch,
    DispatchBatch,
    FailRequest,
    FeedPart,
    FetchValue,
    GrantParts,
    SetTimer,
)
from dyorc.engine.engine import Engine
from dyorc.engine.engine_context import Host
from dyorc.engine.events import AnswerTaken, Event, PartTaken, RequestArrived, RequestCancelled, TimerFired, ValueFetched
from dyorc.engine.model.request_tree import Request
from dyorc.errors import (
    DyOrcError,
    ForeignAwaitError,
    InvalidInputError,
    NondeterministicWorkflowError,
    ProgramError,
    SizeLimitError,
    WorkflowError,
    WorkflowLimitError,
    bounded,
)
from dyorc.orchestrator.step_watch import StepWatch
from dyorc.replay.identities import complete
from dyorc.replay.recorded_results import Following, LoadedPrograms, MissingValueError, RecordedResults
from dyorc.replay.replay_scheduler import ReplayScheduler
from dyorc.telemetry.histories.history import RequestHistory
from dyorc.telemetry.histories.journal_reader import JournalReader

_CONFIG = EngineConfig(hold=False, max_determinism_checks=2**62, speculation=SpeculationConfig(enabled=False))
"""Each workflow is run a second time against its journal, which shows whether it is deterministic."""
_ALL_BYTES = 2**62
_OWN_ERRORS = frozenset(
    kind.code
    for kind in (
        ProgramError,
        WorkflowError,
        InvalidInputError,
        SizeLimitError,
        ForeignAwaitError,
        NondeterministicWorkflowError,
        WorkflowLimitError,
    )
)
"""What a workflow, its programs or its inputs cause, so that it comes again."""


@dataclass(frozen=True, slots=True)
class ReplayedRequest:
    """A request that was replayed.

    Attributes:
        history: What happened in the replay.
        missing: Why it did not come to an end; empty: it did.
        lacks_value: Whether that is a value whose bytes its history does not have, and not what the version does.
        is_interrupted: Whether the workflow computed for longer than it may, so that its step was interrupted.
        has_run_programs: Whether a program ran for it.
        is_refused: Whether the version refuses it, as the server does: what its client sent does not fit.
    """

    history: RequestHistory
    missing: str = ""
    lacks_value: bool = False
    is_interrupted: bool = False
    has_run_programs: bool = False
    is_refused: bool = False


class UnreplayableError(Exception):
    """A history that cannot be replayed on a version. Says why."""


class Replayer:
    """Replays histories on one workflow, one after another. While it is entered, steps that take too long are interrupted.

    Args:
        target: The workflow, or the program.
        run_programs: Whether programs run for calls that a history does not have. Programs with an effect never run.
        step_limit_s: A step of the workflow may take so long, as where it is served.

    Raises:
        DefinitionError: If it cannot be served.
    """

    def __init__(
        self, target: Workflow | Program, *, run_programs: bool = False, step_limit_s: float = _CONFIG.step_limit_s
    ) -> None:
        self._workflow = as_model(target)
        self._programs = LoadedPrograms() if run_programs else None
        self._watch = StepWatch(math.inf, step_limit_s)
        self._engine = self._new_engine()
        self._numbers = count(1)
        self._now_ns = 1

    def __enter__(self) -> Self:
        self._watch.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._watch.__exit__(*exc_info)

    @property
    def name(self) -> str:
        """The workflow's name."""
        return self._workflow.name

    @property
    def signature(self) -> Signature:
        """The workflow's signature."""
        return self._workflow.signature

    def replay(self, history: RequestHistory) -> ReplayedRequest:
        """Replays a history.

        Raises:
            UnreplayableError: If that is impossible.
        """
        if reason := _refusal(history, self.signature):
            raise UnreplayableError(reason)
        complete(history)
        results = RecordedResults(history, self._programs)
        try:
            inputs, statics = _bound(history, results, self.signature)
        except InvalidInputError as error:
            refused = RequestHistory(history.request_id, self.name, "", at_s=0.0, duration_ms=0.0)
            refused.error = error.code, bounded(str(error))
            return ReplayedRequest(refused, is_refused=True)
        journal = _Journal(history.request_id)
        terms = Terms(deadline_ns=NO_DEADLINE_NS, priority=history.priority, tenant=history.tenant)
        facts = RequestFacts(history.request_id, None, history.headers)
        number = next(self._numbers)
        arrived = RequestArrived(number, self._workflow, inputs, statics, terms, facts=lambda: facts, keeper=journal)
        num_interrupted = self._watch.num_interrupted
        missing = self._run(arrived, results)
        if journal.history is None:  # it waits for what is missing
            journal.ended_ns = journal.ended_ns or self._now_ns
            journal.keep(self._engine.tasks.requests[number])
            self._give_up(number)
        assert journal.history is not None
        return ReplayedRequest(
            journal.history,
            missing,
            lacks_value=bool(missing and results.missing_values),
            is_interrupted=self._watch.num_interrupted > num_interrupted,
            has_run_programs=results.has_run_programs,
        )

    def _run(self, arrived: RequestArrived, results: RecordedResults) -> str:
        """Runs a request until nothing is left to be done. Returns why it has no answer; empty: it has one, or an error."""
        due: list[tuple[int, int, Event]] = [(self._now_ns, 0, arrived)]
        order = count(1)
        is_ended = False
        while due:
            self._now_ns, _, event = heapq.heappop(due)
            events = [event]
            while due and due[0][0] == self._now_ns:
                events.append(heapq.heappop(due)[2])
            for action in self._engine.handle(events, self._now_ns):
                is_ended = is_ended or isinstance(action, AnswerRequest | FailRequest)
                for at_ns, following in self._carry_out(action, results):
                    heapq.heappush(due, (at_ns, next(order), following))
            if not due and not is_ended:
                due = [(at_ns, next(order), following) for at_ns, following in results.go_on(self._now_ns)]
                heapq.heapify(due)
        self._now_ns += 1
        return "" if is_ended else results.why_endless()

    def _carry_out(self, action: Action, results: RecordedResults) -> Sequence[Following]:
        """Returns what comes of an action, and when."""
        now_ns = self._now_ns
        match action:
            case DispatchBatch():
                return results.answer(action, now_ns)
            case GrantParts() | FeedPart() | CancelBatch():
                return results.control(action, now_ns)
            case FetchValue(fetch_id=fetch_id, tensors=tensors):
                try:
                    return [(now_ns, ValueFetched(fetch_id, tuple([results.read(tensor) for tensor in tensors])))]
                except MissingValueError as error:
                    results.missing_values.append(str(error))
                    return ()
            case AnswerPart(request_id=request_id, index=index):
                return [(now_ns, PartTaken(request_id, index))]
            case AnswerRequest(request_id=request_id):
                return [(now_ns, AnswerTaken(request_id))]
            case SetTimer(at_ns=at_ns) if at_ns <= now_ns:
                return [(now_ns, TimerFired())]
            case _:
                return ()

    def _give_up(self, number: int) -> None:
        """Makes the engine forget a request; if it cannot, because of effects that do not run, another engine takes over."""
        self._engine.handle([RequestCancelled(number)], self._now_ns)
        self._now_ns += 1
        if number in self._engine.tasks.requests:
            self._engine = self._new_engine()

    def _new_engine(self) -> Engine:
        host = Host(step_monitor=self._watch)
        return Engine(_CONFIG, self._workflow.programs, make_scheduler=ReplayScheduler, host=host)


class _Journal:
    """The `JournalKeeper` of a replayed request."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._error: DyOrcError | None = None
        self.ended_ns = 0
        self.history: RequestHistory | None = None

    def ended(self, error: DyOrcError | None, now_ns: int) -> None:
        self._error, self.ended_ns = error, now_ns

    def keep(self, request: Request) -> None:
        if request.root is not None and self.history is None:
            reader = JournalReader(request, request.root, _ALL_BYTES)
            self.history = reader.read(self._request_id, self._error, self.ended_ns)


def _bound(
    history: RequestHistory, results: RecordedResults, signature: Signature
) -> tuple[tuple[TensorRef, ...], tuple[StaticValue, ...]]:
    """Returns a request's inputs and parameters, as a version takes them: what may not have been sent has the version's default.

    Raises:
        InvalidInputError: If the version refuses what was sent.
    """
    sent: dict[str, Any] = {name: results.input(name) for name in history.inputs if name not in history.defaults}
    unknown = (*history.redacted, *history.unkept)
    statics = {name: history.statics.get(name) for name in (*history.statics, *unknown) if name not in history.inputs}
    sent |= {name: value for name, value in statics.items() if name not in history.defaults}
    for spec in signature.parameters:
        if spec.name in sent and isinstance(spec, StaticSpec) == isinstance(sent[spec.name], TensorRef):
            is_static = "is a parameter" if isinstance(spec, StaticSpec) else "is a tensor"
            raise InvalidInputError(f"{signature.owner}: {spec.name!r} {is_static}, and was sent as the other")
    values, bound = signature.bind((), sent)
    inputs = tuple([value if isinstance(value, TensorRef) else inline(value) for value in values])
    signature.check_inputs(inputs)
    for spec, tensor in zip(signature.inputs, inputs, strict=True):
        if tensor.data is not None:
            signature.check_content(spec, tensor.data)
    return inputs, bound


def _refusal(history: RequestHistory, signature: Signature) -> str:
    """Returns why a history cannot be replayed on a version; empty if it can."""
    if history.refusal:
        return history.refusal
    if history.error and history.error[0] not in _OWN_ERRORS:
        return f"it failed for a reason outside of its workflow: {history.error[0]}"
    for spec in signature.statics:
        if spec.name in history.redacted:
            return f"its parameter {spec.name!r} is redacted"
        if spec.name in history.unkept:
            return f"its parameter {spec.name!r} was too large to be kept"
    return ""
