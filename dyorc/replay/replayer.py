"""Replays histories on a workflow: the engine runs it, and its calls get the results that the history has.

Under a virtual clock: a call takes as long as it took when the history was recorded, its wait for a replica included. For one
thread.
"""

import heapq
import inspect
import math
from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Self

from dyorc.authoring.program import Program
from dyorc.authoring.signature import Signature, StaticSpec, StaticValue
from dyorc.authoring.spec import TensorSpec
from dyorc.authoring.workflow import Workflow, as_model
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.core.arrays import inline
from dyorc.core.request import NO_DEADLINE_NS, RequestFacts, Terms
from dyorc.core.tensor import TensorRef
from dyorc.engine.actions import Action, AnswerRequest, DispatchBatch, FailRequest, FetchValue, SetTimer
from dyorc.engine.engine import Engine
from dyorc.engine.engine_context import Host
from dyorc.engine.events import AnswerTaken, Event, RequestArrived, RequestCancelled, TimerFired, ValueFetched
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
)
from dyorc.orchestrator.step_watch import StepWatch
from dyorc.replay.identities import complete
from dyorc.replay.recorded_results import LoadedPrograms, MissingValueError, RecordedResults
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
    """

    history: RequestHistory
    missing: str = ""
    lacks_value: bool = False
    is_interrupted: bool = False
    has_run_programs: bool = False


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
        if reason := _refusal(history, self._workflow):
            raise UnreplayableError(reason)
        complete(history)
        results = RecordedResults(history, self._programs)
        journal = _Journal(history.request_id)
        signature = self._workflow.signature
        inputs = tuple([_input_of(spec, history, results) for spec in signature.inputs])
        statics = tuple([_static_of(spec, history) for spec in signature.statics])
        try:
            signature.check_inputs(inputs)
        except DyOrcError as error:
            raise UnreplayableError(f"its inputs do not fit the version: {error}") from None
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
            lacks_value=bool(missing) and results.lacks_value,
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
        self._now_ns += 1
        if is_ended:
            return ""
        return results.missing[0] if results.missing else "something that it waits for"

    def _carry_out(self, action: Action, results: RecordedResults) -> Sequence[tuple[int, Event]]:
        """Returns what comes of an action, and when."""
        now_ns = self._now_ns
        match action:
            case DispatchBatch():
                answered = results.answer(action)
                return () if answered is None else [(now_ns + round(answered.took_s * 1e9), answered.event)]
            case FetchValue(fetch_id=fetch_id, tensors=tensors):
                try:
                    return [(now_ns, ValueFetched(fetch_id, tuple([results.read(tensor) for tensor in tensors])))]
                except MissingValueError as error:
                    results.miss_value(error)
                    return ()
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


def _input_of(spec: TensorSpec, history: RequestHistory, results: RecordedResults) -> TensorRef:
    default = spec.default_array
    if default is not None and _is_unsent(spec.name, history.inputs, history):
        return inline(default)
    return results.input(spec.name)


def _static_of(spec: StaticSpec, history: RequestHistory) -> StaticValue:
    value: StaticValue = spec.default
    has_default = value is not inspect.Parameter.empty
    return value if has_default and _is_unsent(spec.name, history.statics, history) else history.statics[spec.name]


def _is_unsent(name: str, values: Container[str], history: RequestHistory) -> bool:
    """Returns whether the version's default is what a request has, as far as is known."""
    return name not in values or name in history.defaults


def _refusal(history: RequestHistory, workflow: Workflow) -> str:
    """Returns why a history cannot be replayed on a workflow; empty if it can."""
    if history.refusal:
        return history.refusal
    if history.error and history.error[0] not in _OWN_ERRORS:
        return f"it failed for a reason outside of its workflow: {history.error[0]}"
    if workflow.is_streaming:
        return "the version answers in parts"
    for program in workflow.programs:
        if program.is_streaming or program.signature.streams:
            return f"program {program.name!r} of the version reads or yields a stream"
        if program.signature.takes_residents or program.signature.outputs.has_residents:
            return f"program {program.name!r} of the version keeps residents"
    signature = workflow.signature
    for spec in signature.inputs:
        if spec.name not in history.inputs and spec.default_array is None:
            return f"the version needs an input {spec.name!r}, which the history does not have"
    for spec in signature.statics:
        if spec.name in history.redacted:
            return f"its parameter {spec.name!r} is redacted"
        if spec.name not in history.statics and spec.default is inspect.Parameter.empty:
            return f"the version needs a parameter {spec.name!r}, which the history does not have"
    return ""
