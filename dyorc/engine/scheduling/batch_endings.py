"""Batches that come back, with their results or without, and the replicas that are free again by that."""

from collections.abc import Mapping

from dyorc.core.tensor import blocks_of
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.events import BatchDone, BatchFailed, BatchUnsent, TensorsLost
from dyorc.engine.model.program_call import CallState
from dyorc.engine.scheduling.batch_accounting import (
    count_batch,
    count_memory_failure,
    end_starvation,
    end_trace,
    learn_from_batch,
    note_end,
)
from dyorc.engine.scheduling.batch_sending import NS_PER_S, BatchSender
from dyorc.engine.scheduling.failed_streams import error_of
from dyorc.engine.scheduling.parking import Parking
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import NEVER_NS, Batch, Replica
from dyorc.engine.scheduling.resident_scheduler import ResidentScheduler
from dyorc.engine.scheduling.retrying import RetryPolicy
from dyorc.engine.turn import CallsDone, CallUnready
from dyorc.errors import CapacityError, ProgramError


class BatchEndings:
    """Ends batches: hands out results, retries what failed, and lets replicas take the next batch.

    Args:
        pools: Programs by name.
        replicas: Those that are not parked, by id.
        batches: The batches in flight; ended ones are removed.
    """

    def __init__(
        self,
        context: EngineContext,
        pools: Mapping[str, ReplicaPool],
        replicas: Mapping[str, Replica],
        batches: dict[int, Batch],
        sender: BatchSender,
        parking: Parking,
        residents: ResidentScheduler,
        retrying: RetryPolicy,
    ) -> None:
        self._turn = context.turn
        self._placer = context.placer
        self._timers = context.timers
        self._leases = context.leases
        self._pools = pools
        self._replicas = replicas
        self._batches = batches
        self._sender = sender
        self._parking = parking
        self._residents = residents
        self._retrying = retrying

    def batch_done(self, event: BatchDone) -> None:
        """Handles a batch that ran."""
        batch = self._take_back(event.replica_id, event.batch_id, event.execute_s)
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
            self._residents.batch_done(process, pool, batch.calls, event.outputs)
        if batch.calls[0].is_suspect and (batch.ongoing is None or not batch.ongoing.is_cancelled):  # it is alone
            self._retrying.clear_suspect(batch.calls[0], pool)
        if self._placer is not None and batch.ongoing is None:
            self._placer.batch_done(batch.calls, event.execute_s)
        self._turn.ended.append(CallsDone(batch.calls, event.outputs))

    def _discard_results(self, event: BatchDone) -> None:
        """Discards results that are no longer awaited."""
        self._leases.discard(blocks_of(tensor for outputs in event.outputs for tensor in outputs))

    def batch_failed(self, event: BatchFailed) -> None:
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
            self._retrying.halve_and_retry(batch, error_of(batch.calls[0], event))

    def tensors_lost(self, event: TensorsLost) -> None:
        """Handles a batch that did not run because its inputs could not be read."""
        batch = self._take_back(event.replica_id, event.batch_id)
        if batch is None:
            return
        end_trace(batch, "lost", self._turn.now_ns)
        if self._leases.lose(event.blocks):
            self._retrying.dequeue_unreadable(self._pools)
        self._retrying.inputs_lost(batch)

    def batch_unsent(self, event: BatchUnsent) -> None:
        """Handles a batch that never reached its replica: its calls wait again, without a penalty."""
        batch = self._take_back(event.replica_id, event.batch_id)
        if batch is not None:
            end_trace(batch, "lost", self._turn.now_ns)
            self._turn.ended.extend([CallUnready(call) for call in batch.calls if call.state is CallState.RUNNING])

    def _take_back(self, replica_id: str, batch_id: int, execute_s: float | None = None) -> Batch | None:
        """Ends a batch on its replica, and returns it; None if the engine had given it up.

        Args:
            execute_s: How long it ran there; None if it did not, or failed.
        """
        replica = self._replicas.get(replica_id)
        batch = self._batches.get(batch_id)
        if replica is None or batch is None or batch.replica is not replica:
            return None
        del replica.batches[batch_id]
        self.forget(batch)
        pool = replica.pool
        if execute_s is not None and pool.ongoing is None:
            note_end(batch, execute_s, self._turn.now_ns)
        running = replica.running
        is_draining = replica_id in pool.draining
        if running is None:
            self.leave_core(replica)
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
        self._turn.touched[pool.program.name] = None
        if replica.process is not None:
            self._residents.free(replica.process)
        if batch.calls[0].is_suspect:
            self._retrying.touch_suspects(self._pools)
        return batch

    def leave_core(self, replica: Replica) -> None:
        """Considers guesses again that found no free core, because a replica has stopped running something."""
        processor = replica.processor
        if processor is None:
            return
        processor.leave(replica.replica_id, self._turn.now_ns)
        for program in processor.waiting:
            self._turn.touched[program] = None
        processor.waiting.clear()

    def forget(self, batch: Batch) -> None:
        del self._batches[batch.batch_id]
        if (ongoing := batch.replica.pool.ongoing) is not None:
            ongoing.pop(batch.calls[0], None)
        if batch.blocks:
            self._leases.release(batch.blocks)
        if batch.ongoing is not None:
            self._leases.release([block for fed in batch.ongoing.fed_blocks.values() for each in fed.values() for block in each])
        for program in batch.awaited_by:
            self._turn.touched[program] = None  # batches held for it no longer have to wait
        if batch.timeout is not None:
            self._timers.cancel(batch.timeout)
