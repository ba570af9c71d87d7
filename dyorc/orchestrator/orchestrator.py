"""The orchestrator: the asyncio shell that feeds the engine and carries out what it decides.

It owns the clock; a `Fleet` has the replicas, `Tensors` the references to bytes, `LocalAnswers` the receivers of answers.
Everything happens on one event loop. Events of one turn of the loop reach the engine together, so that they can share batches.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import count
from types import TracebackType
from typing import Any, Self, TypeVar, assert_never, cast

import structlog

from dyorc.answering.input_identity import InputsIdentity, read_warning
from dyorc.answering.local_answers import SCHEDULER_FAILED, LocalAnswers, own_arrays
from dyorc.answering.part_stream import PartStream
from dyorc.answering.requests_in_flight import RecordedRequest, RequestInFlight
from dyorc.answering.tensor_exchange import Tensors
from dyorc.answering.waiting import OnStart, answer_of, parts_of
from dyorc.authoring.workflow import Workflow
from dyorc.config import LogsConfig, OrchestratorConfig
from dyorc.core.arrays import Array
from dyorc.core.request import Receiver
from dyorc.engine.actions import (
    Action,
    AnswerPart,
    AnswerRequest,
    CancelBatch,
    DispatchBatch,
    EffectFailed,
    FailRequest,
    FeedPart,
    FetchValue,
    GrantParts,
    ParkReplica,
    ProgramStarved,
    RebuildFailed,
    ReleaseTensors,
    ReplaceReplica,
    SetTimer,
    StageTensors,
)
from dyorc.engine.engine import Engine
from dyorc.engine.engine_context import Host
from dyorc.engine.estimators import Histogram
from dyorc.engine.events import (
    Event,
    ReplicasWanted,
    RequestArrived,
    RequestCancelled,
    TimerFired,
)
from dyorc.engine.interfaces import Load
from dyorc.engine.tallies import ModelStatistics
from dyorc.errors import InternalError, NotReadyError, RequestCancelledError
from dyorc.models.offers import ModelKey, Offers
from dyorc.models.registry import ModelRegistry
from dyorc.models.status import StatusBoard
from dyorc.models.submission import Submission
from dyorc.orchestrator.fleet import Fleet
from dyorc.orchestrator.generator_hooks import GeneratorHooks
from dyorc.orchestrator.measuring import ReplicaMeasuring, levels_of, read_levels
from dyorc.orchestrator.request_owners import RequestOwners
from dyorc.orchestrator.scaler import Scaler, ScalingTarget
from dyorc.orchestrator.served_programs import ServedPrograms
from dyorc.orchestrator.side_effects import EffectLog, SideEffectBarrier
from dyorc.orchestrator.step_watch import StepWatch
from dyorc.telemetry.levels import Levels
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.metric_sources import OK, read_statistics
from dyorc.telemetry.metrics.readings import Readings

_log = structlog.get_logger("dyorc.orchestrator")

T = TypeVar("T")

_MAX_TURN_NS = 2_000_000
"""After this long, what has come of a turn waits for the next, so that connections are served in between."""


_LOOK_AGAIN_S = 0.02
"""Interval of looks whether effects have happened."""


class Orchestrator:
    """Runs workflows on replicas.

    Args:
        registry: The workflows, and the programs that are deployed.
        tensors: References to all tensors; open as long as the orchestrator runs.
        status: What each program is doing, as `fleet` reports it.
        fleet: The replicas.

    Attributes:
        tensors: The same.
        status: The same.
        scaler: Decides how many replicas there are.
        programs: The served programs, which may change.
        askers: Requests of other processes.
    """

    def __init__(
        self, registry: ModelRegistry, config: OrchestratorConfig, tensors: Tensors, status: StatusBoard, fleet: Fleet
    ) -> None:
        self._registry = registry
        self._config = config
        self._watch = StepWatch(config.engine.step_warning_s, config.engine.step_limit_s)
        self._generators = GeneratorHooks()
        # A replica may still answer an earlier engine, of this process or of one before it.
        self._host = Host(batch_ids=count(secrets.randbits(48)), step_monitor=self._watch)
        self.scaler = Scaler(config.scaling)
        self.programs = ServedPrograms(registry, status, fleet, self.scaler, self)
        self._num_engines = 0
        self._engine = self._new_engine()
        self._turns_ns = Histogram()
        self._measuring = ReplicaMeasuring(status, tensors)
        self.status = status
        self.tensors = tensors
        self._fleet = fleet
        self._answers = LocalAnswers(tensors, self._post)
        self._barrier = SideEffectBarrier(fleet, self._post)
        self._effect_log = EffectLog()
        self._numbers = count(1)
        self.request_owners = RequestOwners(tensors, self._numbers, self._post, self._arrive_for_others)
        self._owners = self.request_owners.of_requests
        self._events: list[Event] = self.programs.twins_added()
        self._is_flush_due = False
        self._is_flushing = False
        self._num_arrived = 0
        self._is_crowded = False
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            stack.enter_context(self._watch)
            stack.enter_context(self._generators)
            stack.enter_context(self.tensors.exchange)
            self.tensors.open()
            stack.callback(self.tensors.close)
            stack.push_async_callback(self._answers.close)
            await stack.enter_async_context(self._fleet.running(self._post, self._flush_now))
            await stack.enter_async_context(
                self.scaler.running(ScalingTarget(self.programs.scaled, self.status, self._load, self.want))
            )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._give_up_engine()
        await self._stack.aclose()

    @property
    def num_requests(self) -> int:
        """Requests in flight."""
        return self._answers.num_requests + len(self._owners)

    async def finish_effects(self, timeout_s: float) -> None:
        """Waits until the effects of answered requests have happened, for so long at most. Call it when no more requests come."""
        give_up_s = time.monotonic() + timeout_s
        while self._engine.pending_effects() and time.monotonic() < give_up_s:  # noqa: ASYNC110 (an event would cost each request)
            await asyncio.sleep(_LOOK_AGAIN_S)

    @property
    def offers(self) -> Offers:
        """The models that it runs."""
        return self._registry.offers

    @property
    def default_timeout_s(self) -> float:
        """The time limit of requests that name none."""
        return self._engine.config.request_timeout_s

    async def refresh(self) -> None:
        """Does nothing: everything here is always up to date."""

    def report(self) -> dict[str, Any]:
        """Returns the current state as plain values: each program's replicas, queue and cost, and how guessing goes."""
        return {
            "num_requests": self.num_requests,
            "programs": {
                name: status.as_report() | self._engine.scheduler.report(name) for name, status in self.status.programs.items()
            },
            "speculation": self._engine.speculator.report(),
            "tensors": self.tensors.report(),
            "link": self._fleet.report(),
        }

    def levels(self) -> Levels:
        """Returns what every program and workflow is doing now, in numbers."""
        return levels_of(self._engine, self._host.statistics, self.status.programs, self.scaler, self._fleet.report())

    def measure(self, readings: Readings) -> None:
        """Adds what metrics show."""
        readings.add_histogram(catalogue.ENGINE_TURN, self._turns_ns, scale=1e-9)
        readings.add(catalogue.ENGINE_RESTARTS, self._num_engines - 1)
        for model in sorted({offer.name for offer in self.offers.all}):  # a series that begins at 1 has not grown, for Prometheus
            readings.add(catalogue.REQUESTS, 0, model, OK)
        read_statistics(self._host.statistics, readings)
        self._measuring.read(self._fleet.report(), readings)
        if not readings.only_counted:
            read_levels(self.levels(), self._engine, readings)

    def scaling(self) -> dict[str, Any]:
        """Returns how many replicas each program has and should have, and why, as plain values."""
        return self.scaler.report()

    def set_logs(self, config: LogsConfig) -> None:
        """Applies log settings to replicas in other processes."""
        self._fleet.set_logs(config)

    async def scale(self, program: str, num_warm: int | None, num_parked: int | None) -> None:
        """Sets how many replicas a program keeps; see `Scaler.scale`."""
        self.scaler.scale(program, num_warm, num_parked)

    def begin_scaling(self) -> None:
        """Makes the scaler decide from now on, and learn from requests."""
        self._host.observer = self.scaler.traffic
        self.scaler.begin()

    def _load(self, program: str) -> Load:
        return self._engine.scheduler.load(program)

    def statistics(self, name: str) -> ModelStatistics:
        """Returns the statistics of a workflow's requests, or of a program's calls, since the start."""
        return self._engine.statistics(name, time.time_ns() - time.monotonic_ns())

    def warn(self, warning: Mapping[str, Any]) -> None:
        """Takes in, as plain values, which inputs may have ended another process that runs the same programs."""
        self._post(read_warning(warning))

    def want(
        self,
        program: str,
        num_warm: int,
        num_parked: int,
        lead_s: float = 0.0,
        misplaced: Sequence[str] = (),
        *,
        is_order: bool = False,
    ) -> None:
        """Sets how many replicas of a program take batches, and how many more wait without weights.

        Args:
            lead_s: How long it takes until a replica is ready, if none is; 0 if unknown.
            misplaced: Replicas that are parked before others, if there are too many.
            is_order: Whether a person has set the number.
        """
        self._post(ReplicasWanted(program, num_warm, lead_s, tuple(misplaced), is_order))
        self._fleet.want(program, num_warm, num_parked)

    def runs(self, workflow: Workflow) -> bool:
        """Returns whether a request of a workflow is in flight."""
        return self._engine.runs(workflow)

    def tell_now(self, event: Event) -> None:
        """Makes the engine handle an event before this returns."""
        self._post(event)
        self._flush_now()

    def workflow(self, model: ModelKey) -> Workflow:
        """Returns what a request for a model runs.

        Raises:
            NotReadyError: If there is no such model. Its gateway knew it, so it has left since; asked again, it knows more.
        """
        if (workflow := self._registry.workflows.get(model)) is None:
            raise _gone(model)
        return workflow

    def submit(self, submission: Submission, receiver: Receiver[Any], stream: PartStream | None = None) -> int:
        """Runs a workflow on checked inputs. It may have parts, or its answer, before this returns.

        Args:
            stream: Gets the parts, if the workflow has any.

        Returns:
            The request's number, for `cancel`.

        Raises:
            NotReadyError: See `workflow`.
            CapacityError: If the arena is full.
            PayloadTooLargeError: If the inputs would not fit into an empty arena.
        """
        workflow = self._registry.workflows.get(submission.model)
        if workflow is None:
            raise _gone(submission.model)
        tensors = self.tensors.keep_all(submission.inputs, submission.body)
        request_id = next(self._numbers)
        identity = InputsIdentity(workflow.name, submission.inputs, submission.statics)
        recorded = RecordedRequest.begin(request_id, submission)
        story, keeper = (None, None) if recorded is None else (recorded.story, recorded.keeper)
        in_flight = RequestInFlight(receiver, identity, recorded, stream, effect_begins=submission.effect_begins)
        is_alone = self._answers.open(request_id, in_flight)
        arrived = RequestArrived(
            request_id, workflow, tensors, submission.statics, submission.terms, identity, story, submission.facts, keeper
        )
        self._arrive(arrived, is_alone and not self._owners)
        return request_id

    def cancel(self, request_id: int) -> bool:
        """Gives a request up, if it is still in flight.

        Returns:
            True if its receiver will not be called again. An answer that is being made on a thread is completed, and a request
            that has already ended stays as it is.
        """
        pending = self._answers.give_up(request_id)
        if pending is None:
            return False
        self._post(RequestCancelled(request_id))
        if pending.recorded is not None:  # the engine ends the story first, when this turn of the loop ends
            self._loop.call_soon(pending.recorded.end, RequestCancelledError("the request was cancelled"))
        return True

    async def infer(
        self,
        submission: Submission,
        *,
        take: Callable[[list[Array]], T] = cast(Any, own_arrays),  # noqa: B008
        started: OnStart | None = None,
    ) -> T:
        """Runs a workflow and returns its answer; see `Backend.infer`. By default, the outputs themselves are returned."""
        return await answer_of(self, submission, take, started)

    def stream(
        self,
        submission: Submission,
        *,
        take: Callable[[list[Array]], T] = cast(Any, own_arrays),  # noqa: B008
        started: OnStart | None = None,
    ) -> AsyncGenerator[list[T]]:
        """Runs a workflow and yields its parts in order; see `Backend.stream`. A slow caller holds the workflow up, after
        `EngineConfig.max_untaken_parts`."""
        workflow = self._registry.workflows.get(submission.model)
        answers = self._answers if workflow is not None and workflow.is_streaming else None
        return parts_of(self, answers, submission, take, started)

    # Events in

    def _arrive_for_others(self, arrived: RequestArrived) -> None:
        self._arrive(arrived, is_alone=self.num_requests == 1)

    def _arrive(self, arrived: RequestArrived, is_alone: bool) -> None:
        """Hands a request to the engine: at the end of the loop's turn, with others, or now if no other is in flight."""
        self._events.append(arrived)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)
        self._num_arrived += 1
        if is_alone and self._num_arrived == 1 and not self._is_crowded:
            self._flush_now()  # there is nothing to share a batch with, so do not wait for the turn's end

    def _post(self, event: Event) -> None:
        if self._barrier.held:
            self._barrier.observe(event)
        self._events.append(event)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Ends the turn of the loop."""
        self._is_flush_due = False
        # Programs in this process may answer a request before the next arrives, so the number in flight says nothing.
        if self._num_arrived:
            self._is_crowded = self._num_arrived > 1
            self._num_arrived = 0
        self._flush_now()

    def _flush_now(self) -> None:
        """Hands the engine all events and carries out its actions; also for events that follow, unless that takes too long."""
        if not self._events or self._is_flushing:
            return
        self._is_flushing, was_due, self._is_flush_due = True, self._is_flush_due, True  # what is posted meanwhile is seen here
        give_up_ns = time.monotonic_ns() + _MAX_TURN_NS
        try:
            self._take_turn()
            while self._events and time.monotonic_ns() < give_up_ns:
                self._take_turn()
        finally:
            self._is_flushing, self._is_flush_due = False, was_due
        if self._events and not was_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _take_turn(self) -> None:
        """Hands the engine the posted events, and carries out its actions."""
        events, self._events = self._events, []
        now_ns = time.monotonic_ns()
        self._generators.is_in_turn = True
        try:
            actions = self._engine.handle(events, now_ns)
        except Exception:
            self._watch.forget()
            _log.exception("engine_failed")
            self._start_over()
            return
        finally:
            self._generators.is_in_turn = False
        self._turns_ns.add(time.monotonic_ns() - now_ns)
        for action in actions:
            try:
                self._carry_out(action)
            except Exception:
                _log.exception("action_failed", action=type(action).__name__)
                if isinstance(action, AnswerRequest | AnswerPart):
                    self._fail(action.request_id, InternalError("the answer could not be put together"))
        self._answers.end_turn()
        self._fleet.end_turn()
        if self.scaler.traffic.is_urgent:
            self.scaler.decide()

    def _new_engine(self) -> Engine:
        self._num_engines += 1
        return Engine(self._config.engine, self.programs.by_name.values(), self._host)

    def _start_over(self) -> None:
        """Handles a bug of the engine: fails everything in flight, and starts a new engine. Idle replicas announce themselves
        again."""
        self._give_up_engine()
        self._engine = self._new_engine()
        for name in self.status.programs:
            self.status.starve(name, "")
        self._events[:0] = [*self.request_owners.holders_joined(), *self.programs.twins_added()]
        self._fleet.start_over()
        self.tensors.free_all()
        self._barrier.held.clear()
        self._answers.lose_all()
        for request_id in list(self._owners):
            self._fail(request_id, InternalError(SCHEDULER_FAILED))

    def _give_up_engine(self) -> None:
        """Counts and logs what is lost with the engine."""
        self._effect_log.log_given_up(self._engine.give_up())

    # Actions out

    def _fail(self, request_id: int, error: Exception) -> None:
        self._owners.pop(request_id, self._answers).fail(request_id, error)

    def _carry_out(self, action: Action) -> None:
        match action:
            case DispatchBatch():
                if action.requests:
                    self._answers.announce_effect(action.requests)
                if action.requests and self._owners:
                    self._barrier.announce(action, self._owners)
                else:
                    self._fleet.dispatch(action)
            case AnswerRequest():
                self._owners.get(action.request_id, self._answers).answer(action)
            case GrantParts() | FeedPart() | CancelBatch():
                self._fleet.control(action)
            case AnswerPart():
                self._owners.get(action.request_id, self._answers).part(action)
            case FailRequest(request_id=request_id, error=error):
                self._fail(request_id, error)
            case EffectFailed():
                self._effect_log.log_failed(action)
            case ReleaseTensors(blocks=blocks):
                self.tensors.free(blocks)
                self._fleet.release(blocks)
            case FetchValue():
                self._answers.fetch(action)
            case SetTimer(at_ns=at_ns):
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self._loop.call_later(max(0.0, (at_ns - time.monotonic_ns()) / 1e9), self._post, TimerFired())
            case StageTensors(replica_id=replica_id, tensors=tensors):
                self._fleet.stage(replica_id, tensors)
            case ParkReplica(replica_id=replica_id):
                self._fleet.park(replica_id)
            case ProgramStarved(program=program, error=error):
                self.status.starve(program, error)
            case RebuildFailed(program=program, workflow=workflow, error=error):
                _log.warning("rebuild_failed", program=program, workflow=workflow, error=error)
            case ReplaceReplica(replica_id=replica_id, reason=reason):
                self._barrier.forget(replica_id)
                self._fleet.give_up(replica_id, reason)
            case _:
                assert_never(action)


def _gone(model: ModelKey) -> NotReadyError:
    return NotReadyError(
        f"version {model.version!r} of model {model.name!r} has left while the request was on its way; send it again"
    )
