"""Queues, batches and replicas: decides which calls run together, where and when.

This half of the engine knows nothing of requests and workflows. It takes ready calls and reports in `Turn.ended` how they ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.core.tensor import BlockId, TensorRef, blocks_of
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
from dyorc.engine.scheduling.batch_accounting import (
    count_batch,
    count_memory_failure,
    end_starvation,
    end_trace,
    learn_from_batch,
)
from dyorc.engine.scheduling.batch_forming import BatchFormer
from dyorc.engine.scheduling.batch_sending import NS_PER_S, BatchSender, InputStaging
from dyorc.engine.scheduling.ongoing import OngoingBatches
from dyorc.engine.scheduling.parking import Parking
from dyorc.engine.scheduling.processes import Process, Processes
from dyorc.engine.scheduling.processors import Processor
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import NEVER_NS, Batch, Replica
from dyorc.engine.scheduling.resident_forming import ResidentFormer, consumed_by, served_first
from dyorc.engine.scheduling.retrying import RetryPolicy, fail
from dyorc.engine.scheduling.speculation_policy import GuessAppraiser, SpeculationPolicy
from dyorc.engine.scheduling.suspects import Refusals
from dyorc.engine.timers import Timer, TimerKind
from dyorc.engine.turn import CallDone, CallLate, CallUnready
from dyorc.errors import CapacityError, DyOrcError, NotDeployedError, ProgramError, ProgramLoadError


class Scheduler:
    """Runs the calls of all requests on the replicas of all programs.

    Args:
        programs: What is deployed, by name.
    """

    def __init__(self, context: EngineContext, programs: Mapping[str, Program]) -> None:
        config = self._config = context.config
        self._statistics = context.host.statistics
        self._turn = context.turn
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
        self.processes = Processes(context.leases, self._statistics)
        policy = SpeculationPolicy(context.speculator, self._appraiser, self.replicas, config.speculation.margin)
        self._former = BatchFormer(context, policy, self.batches)
        self._resident_former = ResidentFormer(
            self._former, policy, self._make_room, lambda call: self._turn.ended.append(CallUnready(call))
        )

    def take(self, event: ReplicaEvent) -> None:
        """Handles what happened to a replica or a batch."""
        match event:
            case BatchDone():
                self._batch_done(event)
            case BatchPart():
                self._ongoing.part_came(event)
            case InputPartsTaken():
                self._ongoing.input_taken(event)
            case BatchFailed():
                self._batch_failed(event)
            case TensorsLost():
                self._tensors_lost(event)
            case BatchUnsent():
                self._batch_unsent(event)
            case ReplicaJoined():
                self._replica_joined(event)
            case ReplicaLeft():
                self._replica_left(event)
            case ReplicaLeaving(replica_id=replica_id):
                self._leave_residents(replica_id)
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
                self._appraiser.forget(workflow)

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
        for process in self.processes.by_name.values():
            self._parking.park_surplus(process)
        pools = [self.pools[name] for name in turn.touched if name in self.pools]
        turn.touched.clear()
        ongoing = [pool for pool in pools if pool.ongoing]
        for pool in pools:
            if pool.suspects.waiting and not self._retrying.is_another_tried(pool, self.pools):
                pool.release_suspect(turn.now_ns)
        if self.processes.by_name and (with_process := [pool for pool in pools if pool.has_process]):
            self._drain_processes(with_process)
            pools = [pool for pool in pools if not pool.has_process]
        for pool in pools:
            while pool.queue.size and (formed := self._former.form_certain(pool)) is not None:
                self._sender.send(pool, formed)
        for pool in pools:
            while pool.guesses.size and (formed := self._former.form_guesses(pool)) is not None:
                self._sender.send(pool, formed)
        for pool in ongoing:
            if pool.queue.size:
                self._ongoing.make_way(pool)
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

    def submit(self, call: Call) -> None:
        """Queues a call whose inputs are all there."""
        pool = self.pools[call.callee.name]
        if call.process and not self._is_bound(call, pool):
            return
        call.submitted_ns = now_ns = self._turn.now_ns
        call.expected_ns = now_ns + int(pool.sojourn_ns.value)
        if (trace := call.trace) is not None:
            trace.queued_ns = trace.queued_ns or now_ns
            trace.was_cold = trace.was_cold or not pool.replicas
            trace.num_waiting = pool.queue.size
        if call.is_guess:
            order = call.context.order
            call.order = QueueOrder(-round(1000 * call.segment.probability()), order.due_ns, order.deadline_ns, 0)
            (pool.guesses_of(call) if call.process else pool.guesses).add(call)
            self._turn.touched[call.callee.name] = None
        else:
            pool.loop_ratio.call_submitted(call, now_ns)
            call.order = call.context.order
            self._enqueue(call, pool)

    def _is_bound(self, call: Call, pool: ReplicaPool) -> bool:
        """Returns whether a call can wait for its process, or for any. If not, its residents are given up."""
        process = self.processes.by_name.get(call.process)
        if process is not None and (pool.program.name not in process.parked or not self.processes.whole_for(pool)):
            return True  # also if chains can go on nowhere: then its program is loaded because calls wait
        call.process = ""
        if call.chain or not call.callee.signature.takes_residents:
            return True
        self.evict([block for block in call.blocks if process is not None and block in process.residents])
        self._turn.ended.append(CallUnready(call))
        return False

    def home_of(self, call: Call) -> str:
        """Returns where residents of a call's task have to be made again; empty if anywhere."""
        pool = self.pools[call.callee.name]
        return self.processes.home_of(call.segment.task, pool) or self.processes.whole_for(pool)

    def bring_together(self, call: Call, residents: Sequence[TensorRef]) -> str:
        """Returns where residents that meet in a call are brought together: in the home of its task, which is chosen now if it
        has none."""
        return self.processes.bring_together(call.segment.task, self.pools[call.callee.name], residents)

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
        call.order = call.context.order
        self._enqueue(call, pool)

    def task_ended(self, workflow: Workflow, duration_ns: int) -> None:
        """Learns how long a task took, since decisions may wait for similar ones."""
        self._appraiser.task_ended(workflow, duration_ns)

    def withdraw(self, call: Call) -> None:
        """Takes a call back, unless it runs already."""
        pool = self.pools[call.callee.name]
        if call in pool.suspects:
            pool.suspects.withdraw(call)
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
        pool = self.pools[call.callee.name]
        if pool.ongoing is not None and (batch := pool.ongoing.pop(call, None)) is not None:
            self._ongoing.give_up(batch)
            self._turn.ended.append(CallUnready(call))

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
        """Adds a replica that is ready, unless it is known already."""
        pool = self.pools.get(event.program)
        if pool is None or event.replica_id in self.replicas:
            return
        replica = Replica(event.replica_id, event.node, pool, self._processor(event))
        replica.process = self.processes.join(event, pool)
        self.replicas[event.replica_id] = replica
        self._leases.holder_joined(event.replica_id)
        pool.add(replica)
        if replica.process is not None:
            replica.process.replicas[event.replica_id] = replica
            if pool.ongoing is None and not replica.process.is_free:
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
                self._free(replica.process)
                if not replica.process.replica_ids:
                    self._unbind(replica.process.name)
        if has_losses:
            self._dequeue_unreadable()

    def _take_from(self, replica: Replica, event: ReplicaLeft) -> None:
        """Takes back the calls of a lost replica. They are queued again, or fail if they may not be repeated."""
        pool = replica.pool
        pool.remove(replica)
        if not pool.replicas:
            pool.target.awaited_ns = self._turn.now_ns
        if replica.batches:
            self._leave_core(replica)
        num_running = len(replica.batches) if pool.ongoing is not None else 1
        for batch in replica.batches.values():
            self._forget(batch)
            end_trace(batch, "lost", self._turn.now_ns)
            self._retrying.replica_lost(batch, event, num_running)
        replica.batches.clear()
        self._parking.balance(pool)
        self._touch(pool.program.name)

    # Tensors

    def lose(self, blocks: Iterable[BlockId]) -> None:
        """Marks blocks that cannot be read from their holders."""
        if self._leases.lose(blocks):
            self._dequeue_unreadable()

    def _dequeue_unreadable(self) -> None:
        """Takes calls that need lost tensors out of their queues. Cost: visits all waiting calls."""
        for pool in self.pools.values():
            for queue in (*pool.queues(), pool.suspects, *pool.queues_of_guesses()):
                for call in queue.take_out(self._retrying.lacks_inputs):
                    call.wait()
                    self._turn.ended.append(CallUnready(call))

    def forget(self, blocks: Iterable[BlockId]) -> None:
        """Forgets released blocks."""
        self.staging.forget(blocks)
        for process in self.processes.forget(blocks) if self.processes.by_name else ():
            for replica in list(process.replicas.values()):
                pool = replica.pool
                if replica.is_surplus or pool.queue.size or pool.guesses.size or pool.suspects.waiting:
                    self._touch(pool.program.name)

    def evict(self, blocks: Iterable[BlockId]) -> None:
        """Drops residents that are to be computed again when they are needed. Calls that wait for them leave their queues."""
        self.processes.evict(blocks)
        self._dequeue_unreadable()
        for pool in self.pools.values():
            if pool.has_process and pool.queue.size:
                self._touch(pool.program.name)

    def _make_room(self, blocks: Iterable[BlockId]) -> None:
        """Drops residents for want of room. Their tasks begin again like new ones, where there is room."""
        blocks = list(blocks)
        self.processes.leave_homes(blocks)
        self.evict(blocks)

    def _leave_residents(self, replica_id: str) -> None:
        """Has residents made again elsewhere, because their process will end soon."""
        replica = self.replicas.get(replica_id)
        if replica is not None and replica.process is not None and not replica.is_leaving:
            self.evict(list(replica.process.residents))

    def _drain_processes(self, pools: list[ReplicaPool]) -> None:
        """Sends batches of programs that share processes: of each, the program goes first whose last batch is the oldest."""
        now_ns, former = self._turn.now_ns, self._resident_former
        for form in (former.form_certain, former.form_guesses):
            waiting = list(pools)
            while waiting:
                waiting.sort(key=served_first)
                pool = waiting[0]
                formed = form(pool, now_ns) if pool.num_idle else None
                if formed is None:
                    waiting.pop(0)
                else:
                    self._sender.send(pool, formed)
                    if pool.program.signature.consumed:
                        consumed = [block for call in formed.calls for block in consumed_by(call)]
                        self.processes.evict(consumed, is_counted=False)  # they are in use, so that the batch keeps them
                        self._dequeue_unreadable()
        groups = {pool.program.group for pool in self.pools.values() if pool.has_process and pool.queue.size}
        for pool in pools:
            is_idle = pool.num_idle and pool.num_idle == len(pool.replicas)
            if pool.suspects.waiting and is_idle and pool.program.group in groups:
                num_waiting = len(pool.suspects)
                pool.release_suspect(now_ns, is_stuck=True)  # what waits has no room, and perhaps never without this chain
                if len(pool.suspects) < num_waiting:
                    self._touch(pool.program.name)

    def _unbind(self, process: str) -> None:
        """Takes out the calls that wait for a process that is gone."""
        for pool in self.pools.values():
            for call in pool.suspects:
                if call.process == process:
                    call.process = ""  # it makes something again, and may do so anywhere
            for call in pool.unbind(process):
                call.wait()
                self._turn.ended.append(CallUnready(call))

    def _free(self, process: Process) -> None:
        """Considers all programs of a process in which a batch has ended."""
        for name in process.freed():
            self._touch(name)

    def _tensors_lost(self, event: TensorsLost) -> None:
        """Handles a batch that did not run because its inputs could not be read."""
        batch = self._take_back(event.replica_id, event.batch_id)
        if batch is None:
            return
        end_trace(batch, "lost", self._turn.now_ns)
        self.lose(event.blocks)
        self._retrying.inputs_lost(batch)

    def _batch_unsent(self, event: BatchUnsent) -> None:
        """Handles a batch that never reached its replica: its calls wait again, without a penalty."""
        batch = self._take_back(event.replica_id, event.batch_id)
        if batch is not None:
            end_trace(batch, "lost", self._turn.now_ns)
            self._turn.ended.extend([CallUnready(call) for call in batch.calls if call.state is CallState.RUNNING])

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

    # Batches

    def _batch_done(self, event: BatchDone) -> None:
        """Handles a batch that ran."""
        batch = self._take_back(event.replica_id, event.batch_id)
        if batch is None:
            self._discard_results(event)
            return
        pool = batch.replica.pool
        if len(event.outputs) != len(batch.calls):
            self._discard_results(event)
            end_trace(batch, "failed", self._turn.now_ns)
            message = f"a batch of {len(batch.calls)} came back with {len(event.outputs)} results"
            self._retrying.halve_and_retry(batch, ProgramError(pool.program.name, "TransportError", message))
            return
        end_trace(batch, "done", self._turn.now_ns, event)
        if pool.num_starved:
            end_starvation(self._turn, pool)
        if not batch.calls[0].chain and (batch.ongoing is None or not batch.ongoing.is_cancelled):
            learn_from_batch(batch, event.execute_s, self._turn.now_ns)
        count_batch(batch, event, self._turn.now_ns)
        if (process := batch.replica.process) is not None:
            for call, outputs in zip(batch.calls, event.outputs, strict=True):
                self.processes.add(process, call, outputs)
            pool.record.num_rebuilt += bool(batch.calls[0].chain)
        if batch.calls[0].is_suspect:  # it is alone
            self._retrying.clear_suspect(batch.calls[0], pool)
        ended = self._turn.ended
        for call, outputs in zip(batch.calls, event.outputs, strict=True):
            ended.append(CallDone(call, outputs))

    def _discard_results(self, event: BatchDone) -> None:
        """Discards results that are no longer awaited."""
        self._leases.discard(blocks_of(tensor for outputs in event.outputs for tensor in outputs))

    def _batch_failed(self, event: BatchFailed) -> None:
        """Handles a batch whose program raised, or for whose results there was no memory."""
        batch = self._take_back(event.replica_id, event.batch_id)
        if batch is None:
            return
        end_trace(batch, "failed", self._turn.now_ns)
        pool = batch.replica.pool
        count_memory_failure(self._turn, pool, batch, event)
        if event.is_capacity:
            message = f"there is no memory for the results of program {pool.program.name!r}: {event.message}"
            self._retrying.out_of_memory(batch, CapacityError(message, retry_after_s=pool.drain_s()))
        else:
            error = ProgramError(pool.program.name, event.error_type, event.message, event.traceback)
            self._retrying.halve_and_retry(batch, error)

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

    def _take_back(self, replica_id: str, batch_id: int) -> Batch | None:
        """Ends a batch on its replica, and returns it; None if the engine had given it up."""
        replica = self.replicas.get(replica_id)
        batch = self.batches.get(batch_id)
        if replica is None or batch is None or batch.replica is not replica:
            return None
        del replica.batches[batch_id]
        self._forget(batch)
        pool = replica.pool
        running = replica.running
        is_draining = replica_id in pool.draining
        if running is None:
            self._leave_core(replica)
            if is_draining:
                self._parking.park(replica)
            elif pool.ongoing is None:
                if replica.process is None:
                    pool.set_idle(replica)
            else:
                pool.set_busy(replica, NEVER_NS)  # it was listed as idle if it had room beside this batch
        else:
            if running.started_ns is None:
                self._sender.start(running)
                duration_s = replica.latency.predict(running.cost)
                # It began when its predecessor ended, half a link time ago, and its result takes as long on its way back.
                running.expected_ns = None if duration_s is None else self._turn.now_ns + int(duration_s * NS_PER_S)
            if not is_draining:
                pool.set_busy(replica, self._sender.prefetch_ns(replica))
        self._touch(pool.program.name)
        if replica.process is not None:
            self._free(replica.process)
        if batch.calls[0].is_suspect:
            self._retrying.touch_suspects(self.pools)
        return batch

    def _leave_core(self, replica: Replica) -> None:
        """Considers guesses again that found no free core, because a replica has stopped running something."""
        processor = replica.processor
        if processor is None:
            return
        processor.leave(replica.replica_id, self._turn.now_ns)
        for program in processor.waiting:
            self._touch(program)
        processor.waiting.clear()

    def _forget(self, batch: Batch) -> None:
        del self.batches[batch.batch_id]
        if (ongoing := batch.replica.pool.ongoing) is not None:
            ongoing.pop(batch.calls[0], None)
        if batch.blocks:
            self._leases.release(batch.blocks)
        if batch.ongoing is not None:
            self._leases.release([block for fed in batch.ongoing.fed_blocks.values() for each in fed.values() for block in each])
        for program in batch.awaited_by:
            self._touch(program)  # batches held for it no longer have to wait
        if batch.timeout is not None:
            self._timers.cancel(batch.timeout)
