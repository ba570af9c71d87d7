"""Queues, batches and replicas: decides which calls run together, where and when.

This half of the engine knows nothing of requests and workflows. It takes ready calls and reports in `Turn.ended` how they ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.core.request import shadow_name
from dyorc.core.tensor import BlockId, TensorRef
from dyorc.engine.actions import ReplaceReplica
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.events import (
    BatchDone,
    BatchFailed,
    BatchPart,
    BatchUnsent,
    InputPartsTaken,
    LoadFailed,
    ProgramAdded,
    ProgramRemoved,
    ReplicaJoined,
    ReplicaLeaving,
    ReplicaLeft,
    ReplicasWanted,
    SuspectsReported,
    TensorsLost,
    WorkflowRemoved,
)
from dyorc.engine.interfaces import Load, ReplicaEvent
from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.model.request_context import QueueOrder
from dyorc.engine.scheduling.batch_accounting import end_trace
from dyorc.engine.scheduling.batch_endings import BatchEndings
from dyorc.engine.scheduling.batch_forming import BatchFormer
from dyorc.engine.scheduling.batch_sending import BatchSender, InputStaging
from dyorc.engine.scheduling.ongoing import OngoingBatches
from dyorc.engine.scheduling.parking import Parking
from dyorc.engine.scheduling.processors import Processor
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import Batch, Replica
from dyorc.engine.scheduling.resident_scheduler import ResidentScheduler
from dyorc.engine.scheduling.retrying import RetryPolicy, fail
from dyorc.engine.scheduling.speculation_policy import GuessAppraiser, SpeculationPolicy
from dyorc.engine.scheduling.suspects import Refusals
from dyorc.engine.timers import Timer, TimerKind
from dyorc.engine.turn import CallDeferred, CallLate
from dyorc.errors import CapacityError, DyOrcError, NotDeployedError, ProgramLoadError


class Scheduler:
    """Runs the calls of all requests on the replicas of all programs.

    Args:
        programs: What is deployed, by name.
    """

    def __init__(self, context: EngineContext, programs: Mapping[str, Program]) -> None:
        config = self._config = context.config
        self._statistics = context.host.statistics
        self._turn = context.turn
        self._placer = context.placer
        self._timers = context.timers
        self._leases = context.leases
        self._crash_suspects = context.host.crash_suspects
        self._refusals = Refusals(context)
        self._retrying = RetryPolicy(context, self._refusals)
        self.staging = InputStaging(context.turn)
        self.pools = {name: self._new_pool(program) for name, program in programs.items()}
        self._appraiser = GuessAppraiser(self.pools)
        self.replicas: dict[str, Replica] = {}
        self.batches: dict[int, Batch] = {}
        self._ongoing = OngoingBatches(context, self.batches)
        self._sender = BatchSender(context, self.pools, self.batches, self._retrying, self._ongoing)
        self._parking = Parking(context, self.pools, self.replicas, self._sender.prefetch_ns)
        self.processors: dict[str, Processor] = {}
        policy = SpeculationPolicy(context.speculator, self._appraiser, self.replicas, config.speculation.margin)
        self._former = BatchFormer(context, policy, self.batches)
        self._residents = ResidentScheduler(context, self.pools, self._former, policy, self._sender, self._retrying)
        self.processes = self._residents.processes
        self._endings = BatchEndings(
            context, self.pools, self.replicas, self.batches, self._sender, self._parking, self._residents, self._retrying
        )

    def take(self, event: ReplicaEvent) -> None:
        """Handles what happened to a replica or a batch."""
        match event:
            case BatchDone():
                self._endings.batch_done(event)
            case BatchPart():
                self._ongoing.part_came(event)
            case InputPartsTaken():
                self._ongoing.input_taken(event)
            case BatchFailed():
                self._endings.batch_failed(event)
            case TensorsLost():
                self._endings.tensors_lost(event)
            case BatchUnsent():
                self._endings.batch_unsent(event)
            case ReplicaJoined():
                self._replica_joined(event)
            case ReplicaLeft():
                self._replica_left(event)
            case ReplicaLeaving(replica_id=replica_id):
                self._residents.leave_residents(self.replicas.get(replica_id))
                self._parking.dismiss(replica_id)
            case LoadFailed():
                self._load_failed(event)
            case ReplicasWanted():
                self._parking.want(event)
            case SuspectsReported():
                self._retrying.isolate_suspects(event, self.pools)
            case ProgramAdded(program=program):
                self.pools[program.name] = self._new_pool(program)
                self._parking.program_added(program.name)
            case ProgramRemoved(program=program):
                self._remove(program.name)
            case WorkflowRemoved(workflow=workflow):
                for part in workflow.reachable_workflows():
                    self._appraiser.forget(part)
                if self._placer is not None:
                    for name in (workflow.name, shadow_name(workflow.name)):
                        self._placer.forget(name)

    def _new_pool(self, program: Program) -> ReplicaPool:
        return ReplicaPool(program, self._statistics.of_program(program.name), self._config)

    def _remove(self, name: str) -> None:
        """Removes a program. Calls that still wait fail, and its replicas are forgotten."""
        pool = self.pools[name]
        for replica in (*pool.replicas.values(), *pool.draining.values()):
            self._replica_left(ReplicaLeft(replica.replica_id, "its program was removed"))
        for call in pool.take_all():
            call.wait()
            fail(self._turn, pool, call, NotDeployedError(f"program {name!r} is no longer deployed"))
        if pool.timer is not None:
            self._timers.cancel(pool.timer)
        self._parking.program_removed(name)
        for process in self.processes.by_name.values():
            process.parked.discard(name)  # it is whole without a program that nothing calls
        del self.pools[name]
        if not any(other.program.group == pool.program.group for other in self.pools.values()):
            self.processes.forget_group(pool.program.group)

    def fire(self, timer: Timer) -> None:
        """Handles a timer that is due: a batch has run for too long, or a program may form its next batch."""
        match timer.kind, timer.key:
            case TimerKind.EXECUTION, int(batch_id):
                self._execution_timed_out(batch_id)
            case TimerKind.POOL, str(program):
                self._touch(program)
            case _:
                raise AssertionError(f"timer {timer.kind} with key {timer.key!r}")

    def drain(self) -> None:
        """Sends every touched program's replicas as many batches as they take."""
        turn = self._turn
        if turn.harmless:
            self._retrying.clear_requests(self.pools)
        for process in self.processes.by_name.values():
            self._parking.park_surplus(process)
        pools = [self.pools[name] for name in turn.touched if name in self.pools]
        turn.touched.clear()
        ongoing = [pool for pool in pools if pool.ongoing]
        for pool in pools:
            if pool.suspects.waiting and not self._retrying.is_another_tried(pool, self.pools):
                pool.release_suspect(turn.now_ns)
            elif pool.reserved is not None and not pool.suspects.waiting:
                pool.end_reservation()
        if self.processes.by_name and (with_process := [pool for pool in pools if pool.has_process]):
            self._residents.drain(with_process)
            pools = [pool for pool in pools if not pool.has_process]
        for pool in pools:
            while pool.queue.size and (formed := self._former.form_certain(pool)) is not None:
                self._sender.send(pool, formed)
        for pool in pools:
            while pool.guesses.size and (formed := self._former.form_guesses(pool)) is not None:
                self._sender.send(pool, formed)
        for pool in ongoing:
            if pool.queue.size or pool.suspects.waiting:
                self._ongoing.make_way(pool, self.pools)
        for call in turn.queued:
            if call.state is CallState.QUEUED:  # those in a batch fetch their inputs with it
                self.staging.stage(call, self.pools[call.callee.name])
        turn.queued.clear()

    def _touch(self, program: str) -> None:
        self._turn.touched[program] = None

    # Calls

    def check_room(self, programs: Iterable[Program]) -> CapacityError | None:
        """Returns why a request that may call `programs` cannot be accepted now; None if it can."""
        for program in programs:
            pool = self.pools.get(program.name)
            if pool is None:
                continue
            num_queued = pool.num_queued if pool.bound else pool.queue.size  # the call of a property costs each request
            if num_queued >= program.options.max_queued_calls:
                return CapacityError(
                    f"{num_queued} calls of program {program.name!r} are waiting, "
                    f"the limit is {program.options.max_queued_calls}",
                    retry_after_s=pool.drain_s(),
                )
        return None

    def are_calls_waiting(self, programs: Iterable[Program]) -> bool:
        """Returns whether a call of one of these programs waits for a replica."""
        pools = [self.pools[program.name] for program in programs if program.name in self.pools]
        return any(pool.num_queued if pool.bound else pool.queue.size for pool in pools)

    def submit(self, call: Call) -> None:
        """Queues a call whose inputs are all there."""
        pool = self.pools[call.callee.name]
        if call.process and not self._residents.is_bound(call, pool):
            return
        call.submitted_ns = now_ns = self._turn.now_ns
        call.expected_ns = now_ns + int(pool.sojourn_ns.value)
        if (trace := call.trace) is not None:
            trace.queued_ns = trace.queued_ns or now_ns
            trace.was_cold = trace.was_cold or not pool.replicas
            trace.num_waiting = pool.queue.size
        if call.is_guess and self._crash_suspects.is_warned and self._refusals.is_suspect(call):
            call.guess()
            self._turn.ended.append(CallDeferred(call))  # if it crashed as a guess, nobody would know that it was tried
        elif call.is_guess:
            order = call.context.order
            call.order = QueueOrder(-round(1000 * call.segment.probability()), order.due_ns, order.deadline_ns, 0)
            (pool.guesses_of(call) if call.process else pool.guesses).add(call)
            self._turn.touched[call.callee.name] = None
        else:
            pool.loop_ratio.call_submitted(call, now_ns)
            call.order = call.context.order if self._placer is None else self._placer.place(call, now_ns)
            self._enqueue(call, pool)

    def submit_all(self, calls: Sequence[Call]) -> None:
        """Queues calls of one program whose inputs are all there: what does not differ between them is looked at once."""
        pool = self.pools[calls[0].callee.name]
        is_plain = pool.replicas and not (pool.target.is_off or self._refusals.num_of or self._crash_suspects.is_warned)
        if len(calls) == 1 or not is_plain:
            for call in calls:
                self.submit(call)
            return
        now_ns = self._turn.now_ns
        expected_ns = now_ns + int(pool.sojourn_ns.value)
        certain: list[Call] = []
        for call in calls:
            if call.is_guess or call.process or call.is_suspect or call.trace is not None:
                self.submit(call)
                continue
            call.submitted_ns, call.expected_ns = now_ns, expected_ns
            call.order = call.context.order if self._placer is None else self._placer.place(call, now_ns)
            if call.blocks:
                self._turn.queued.append(call)
            certain.append(call)
        if certain:
            pool.loop_ratio.calls_submitted(certain, now_ns)
            pool.queue.add_all(certain)
            self._turn.touched[pool.program.name] = None

    def _enqueue(self, call: Call, pool: ReplicaPool) -> None:
        if pool.load_error is not None and not pool.replicas:
            call.wait()
            fail(self._turn, pool, call, pool.load_error)
            return
        if pool.target.is_off and self._parking.is_refused(call, pool):
            call.wait()
            self._parking.refuse(call, pool)
            return
        if self._refusals.num_of and (refusal := self._refusals.check(call)) is not None:
            call.wait()
            fail(self._turn, pool, call, refusal)
            return
        if not pool.replicas and (lateness := self._parking.lateness(call, pool)) is not None:
            call.wait()
            self._turn.ended.append(CallLate(call, lateness))
            return
        if call.is_suspect or (self._crash_suspects.is_warned and self._refusals.is_suspect(call)):
            call.is_suspect = True
            self._retrying.isolate(call, pool)
        else:
            (pool.queue_of(call) if call.process else pool.queue).add(call)
        if call.blocks:
            self._turn.queued.append(call)
        self._turn.touched[call.callee.name] = None

    def commit(self, call: Call) -> None:
        """Makes certain a guess that has not run yet."""
        pool = self.pools[call.callee.name]
        pool.guesses_of(call).withdraw(call)
        call.order = call.context.order if self._placer is None else self._placer.place(call, self._turn.now_ns)
        self._enqueue(call, pool)

    def task_ended(self, workflow: Workflow, duration_ns: int) -> None:
        """Learns how long a task took, since decisions may wait for similar ones."""
        self._appraiser.task_ended(workflow, duration_ns)

    def withdraw(self, call: Call) -> None:
        """Takes a call back, unless it runs already."""
        pool = self.pools[call.callee.name]
        if call in pool.suspects:
            pool.suspects.withdraw(call)
            self._touch(call.callee.name)  # a replica may be kept free for it
        elif call.state is CallState.QUEUED:
            pool.queue_of(call).withdraw(call)
        elif call.state is CallState.GUESSED:
            pool.guesses_of(call).withdraw(call)
        elif (batch := self._ongoing_batch(call)) is not None:
            self._ongoing.cancel(batch)

    def _ongoing_batch(self, call: Call) -> Batch | None:
        """Returns the batch in which a call of a program that waits or yields runs; None if it does not run."""
        ongoing = self.pools[call.callee.name].ongoing
        return None if ongoing is None else ongoing.get(call)

    def grant(self, call: Call) -> None:
        """Lets a call that yields go on, if it runs, as far as its stream was read."""
        if (batch := self._ongoing_batch(call)) is not None:
            self._ongoing.grant(batch)

    def restart(self, call: Call) -> None:
        """Has a running call that yields run again from its start. What it does now is cancelled."""
        self._ongoing.restart(call, self.pools[call.callee.name])

    def feed(self, call: Call, stream: int, index: int, tensors: tuple[TensorRef, ...]) -> None:
        """Sends a running call the next part of one of its streams."""
        if (batch := self._ongoing_batch(call)) is not None:
            self._ongoing.feed(batch, stream, index, tensors)

    def end_feed(self, call: Call, stream: int, index: int, error: DyOrcError | None) -> None:
        """Sends a running call the end of one of its streams, which has failed if there is an error."""
        if (batch := self._ongoing_batch(call)) is not None:
            self._ongoing.end_feed(batch, stream, index, error)

    def load(self, program: str) -> Load:
        """Returns a program's load. Cost: looks at its replicas."""
        return self.pools[program].load()

    def coldness(self, program: str) -> str:
        """Returns why calls of a program cannot run now, if that is because none of its replicas is ready; empty otherwise."""
        return self._parking.coldness(self.pools[program])

    def report(self, program: str) -> dict[str, Any]:
        """Returns a program's queue and costs, as plain values; costs are None before the first batch."""
        pool = self.pools[program]
        residents: dict[str, Any] = self.processes.report(pool) if pool.has_process else {}
        return pool.report() | residents | {"num_refused_inputs": self._refusals.num_of.get(program, 0)}

    # Replicas

    def _replica_joined(self, event: ReplicaJoined) -> None:
        """Adds a replica that is ready, unless it is known already, or has just been parked: it said so before it learns that."""
        pool = self.pools.get(event.program)
        if pool is None or event.replica_id in self.replicas or event.replica_id in self._turn.parked:
            return
        replica = Replica(event.replica_id, event.node, pool, self._processor(event))
        self._residents.join(event, replica)
        self.replicas[event.replica_id] = replica
        self._leases.holder_joined(event.replica_id)
        pool.add(replica)
        if replica.process is not None and pool.ongoing is None and not replica.process.is_free:
            pool.leave_idle(replica)
        pool.clear_load_failures()
        self._parking.balance(pool)
        self._touch(event.program)

    def _processor(self, event: ReplicaJoined) -> Processor | None:
        """Returns the cores that a new replica shares; one object per node."""
        if not event.num_cores or self.pools[event.program].ongoing is not None:
            return None  # a program that waits leaves the cores to others
        processor = self.processors.get(event.node)
        if processor is None:
            processor = self.processors[event.node] = Processor(event.num_cores)
        return processor

    def _replica_left(self, event: ReplicaLeft) -> None:
        """Removes a replica that is gone, and the tensors it held."""
        replica_id = event.replica_id
        replica = self.replicas.pop(replica_id, None)
        self.staging.replica_left(replica_id)
        if replica is not None and replica.process is not None:
            replica.process.has_culprit |= any(batch.started_ns is not None for batch in replica.batches.values())
        has_losses = self._leases.holder_left(replica_id) | self.processes.leave(replica_id)
        if replica is not None:
            self._take_from(replica, event)
            if replica.process is not None:
                self._residents.replica_left(replica.process)
        if has_losses:
            self._retrying.dequeue_unreadable(self.pools)

    def _take_from(self, replica: Replica, event: ReplicaLeft) -> None:
        """Takes back the calls of a lost replica. They are queued again, or fail if they may not be repeated."""
        pool = replica.pool
        pool.remove(replica)
        if not pool.replicas:
            pool.target.awaited_ns = self._turn.now_ns
        if replica.batches:
            self._endings.leave_core(replica)
        num_running = len(replica.batches) if pool.ongoing is not None else 1
        for batch in replica.batches.values():
            self._endings.forget(batch)
            end_trace(batch, "lost", self._turn.now_ns)
            self._retrying.replica_lost(batch, event, num_running)
        replica.batches.clear()
        self._parking.balance(pool)
        self._touch(pool.program.name)

    def _execution_timed_out(self, batch_id: int) -> None:
        """Gives up a batch that has run for longer than its program may."""
        batch = self.batches.get(batch_id)
        if batch is None or self._ongoing.is_timely(batch):
            return
        replica_id = batch.replica.replica_id
        reason = f"no result after {batch.replica.pool.program.options.execution_timeout_s} s"
        self._replica_left(ReplicaLeft(replica_id, reason))
        if batch.replica.process is not None:
            batch.replica.process.has_hung = True
        self._turn.actions.append(ReplaceReplica(replica_id, reason))

    def _load_failed(self, event: LoadFailed) -> None:
        """Handles a replica that could not load its program. After a few failures in a row, waiting calls fail with the error."""
        pool = self.pools.get(event.program)
        if pool is None:
            return
        pool.num_load_failures += 1
        if pool.num_load_failures >= self._config.max_load_failures:
            pool.load_error = ProgramLoadError(event.program, event.error_type, event.message, event.traceback)
            if not pool.replicas:
                calls = [call for queue in pool.queues() for call in queue.take_all()]
                for call in (*calls, *pool.suspects.take_out(lambda _: True)):
                    call.wait()
                    fail(self._turn, pool, call, pool.load_error)

    # Tensors

    def lose(self, blocks: Iterable[BlockId]) -> None:
        """Marks blocks that cannot be read from their holders."""
        if self._leases.lose(blocks):
            self._retrying.dequeue_unreadable(self.pools)

    def forget(self, blocks: Iterable[BlockId]) -> None:
        """Forgets released blocks."""
        self.staging.forget(blocks)
        if self.processes.by_name:
            self._residents.forget(blocks)

    def evict(self, blocks: Iterable[BlockId]) -> None:
        """Drops residents that are to be computed again when they are needed."""
        self._residents.evict(blocks)

    def home_of(self, call: Call) -> str:
        """Returns where residents of a call's task have to be made again; empty if anywhere."""
        return self._residents.home_of(call)

    def bring_together(self, call: Call, residents: Sequence[TensorRef]) -> str:
        """Returns where residents that meet in a call are brought together."""
        return self._residents.bring_together(call, residents)
