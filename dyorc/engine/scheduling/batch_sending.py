"""Sends batches to replicas, and large inputs ahead of them to the nodes that will need them."""

from collections.abc import Iterable, Mapping

from dyorc.core.tensor import BlockId, DType, TensorRef
from dyorc.engine.actions import DispatchBatch, StageTensors
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.model.program_call import Call, dispatch_all
from dyorc.engine.scheduling.batch_accounting import begin_trace, trace_start
from dyorc.engine.scheduling.holding import foresee
from dyorc.engine.scheduling.ongoing import OngoingBatches
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import NEVER_NS, Batch, FormedBatch, Replica
from dyorc.engine.scheduling.retrying import RetryPolicy
from dyorc.engine.timers import TimerKind
from dyorc.engine.turn import Turn

NS_PER_S = 1_000_000_000


class BatchSender:
    """Sends formed batches.

    Args:
        pools: Programs by name.
        ongoing: Speaks to batches that wait or yield.
        batches: The batches in flight; sent ones are added.
        retrying: Says how long the results of a batch may wait for room.
    """

    def __init__(
        self,
        context: EngineContext,
        pools: Mapping[str, ReplicaPool],
        batches: dict[int, Batch],
        retrying: RetryPolicy,
        ongoing: OngoingBatches,
    ) -> None:
        self._config = context.config
        self._turn = context.turn
        self._timers = context.timers
        self._leases = context.leases
        self._speculator = context.speculator
        self._batch_ids = context.host.batch_ids
        self._crash_suspects = context.host.crash_suspects
        self._pools = pools
        self._batches = batches
        self._retrying = retrying
        self._ongoing = ongoing

    def send(self, pool: ReplicaPool, formed: FormedBatch) -> None:
        """Sends calls as one batch."""
        replica, calls = formed.replica, formed.calls
        batch = Batch(next(self._batch_ids), formed, self._turn.now_ns)
        duration_s = replica.latency.predict(batch.cost)
        batch.expected_ns = self._expect(replica, duration_s)
        self._account(batch, duration_s or 0.0)
        self._batches[batch.batch_id] = batch
        replica.batches[batch.batch_id] = batch
        if len(replica.batches) == 1:
            if replica.processor is not None:
                replica.processor.enter(replica.replica_id, self._turn.now_ns)
            self.start(batch)
        elif pool.ongoing is not None:
            self.start(batch)
        max_parts = 0
        if pool.ongoing is not None:
            pool.ongoing[calls[0]] = batch
            max_parts = self._ongoing.begin(batch)
        if replica.process is None:
            pool.set_busy(replica, self.prefetch_ns(replica))
        else:
            pool.set_busy(replica, NEVER_NS)
            replica.process.batch_sent(replica, batch.batch_id)
        if self._config.hold:
            foresee(self._pools, batch, self._batches)
        operands = [call.operands for call in calls]
        if blocks := {block: None for call in calls for block in call.blocks}:  # one lease each, however many rows lie there
            batch.blocks = list(blocks)
            self._leases.acquire(blocks)
        names_inputs = batch.dispatched_ns < self._crash_suspects.names_inputs_until_ns
        inputs = [call.context.identity for call in calls] if names_inputs else ()
        share = self._retrying.room_share(batch)
        options = pool.program.options
        requests = () if options.pure or options.idempotent else [call.context.number for call in calls]
        dispatch = DispatchBatch(
            replica.replica_id, batch.batch_id, pool.program, operands, calls[0].statics, formed.reason, share,
            inputs, calls[0].is_suspect, None if batch.trace is None else batch.trace.span, requests, max_parts, calls[0].chain,
            [call.context.request_info() for call in calls] if options.sees_requests else (),
        )  # fmt: skip
        self._turn.actions.append(dispatch)

    def _expect(self, replica: Replica, duration_s: float | None) -> int | None:
        """Returns when a batch sent now will be back."""
        if duration_s is None:
            return None
        now_ns = self._turn.now_ns
        free_ns = replica.expected_free_ns
        if free_ns is None:
            return now_ns + int(replica.pool.link_ns.value + duration_s * NS_PER_S)
        return max(now_ns, free_ns) + int(duration_s * NS_PER_S)

    def _account(self, batch: Batch, duration_s: float) -> None:
        """Marks the calls of a batch as running, and accounts for the device time that they take."""
        now_ns = self._turn.now_ns
        pool, processor = batch.replica.pool, batch.replica.processor
        share_s = duration_s / len(batch.calls)
        if recorded := [call for call in batch.calls if call.trace is not None]:
            begin_trace(batch, recorded, now_ns)
        if batch.expected_ns is not None:
            pool.last_free_ns = max(pool.last_free_ns, batch.expected_ns)
        expected_ns = batch.expected_ns if batch.expected_ns is not None else now_ns
        demand = 0.0
        dispatch_all(batch.calls)
        for call in batch.calls:
            call.expected_ns = expected_ns
            demand += 1 if call.bet is None else call.bet.probability
        if share_s:
            self._speculator.use([call for call in batch.calls if call.bet is None], share_s)
        pool.demand.add(demand, now_ns)
        if processor is not None:
            processor.use(demand, demand * share_s, now_ns)

    def start(self, batch: Batch) -> None:
        """Makes a batch the first of its replica."""
        batch.started_ns = now_ns = self._turn.now_ns
        if (processor := batch.replica.processor) is not None:
            batch.busy_ns = processor.busy_ns(now_ns)
        trace_start(batch, now_ns)
        timeout_s = batch.replica.pool.program.options.execution_timeout_s
        batch.timeout = self._timers.set(now_ns + int(timeout_s * NS_PER_S), TimerKind.EXECUTION, batch.batch_id)

    def prefetch_ns(self, replica: Replica) -> int:
        """Returns when to send the next batch so that it arrives as the running one ends: one link time before its result
        comes."""
        running = replica.running
        if running is None or running.started_ns is None:
            return NEVER_NS
        if running.expected_ns is None:
            return NEVER_NS - 1  # unknown: only a full batch goes ahead
        ahead_ns = replica.pool.link_ns.value
        if (early := 1 - self._config.prefetch_ratio) > 0:
            ahead_ns += early * (replica.latency.predict(running.cost) or 0.0) * NS_PER_S
        return running.expected_ns - int(ahead_ns)


class InputStaging:
    """Sends tensors to the node where they will be needed before the batch that needs them is formed, once to each replica.

    Only where the need is certain: all replicas of a program are on one node, and a certain call of it has inputs on another.
    Then one of the replicas may fetch them while the call waits in its queue. A node without a name might be any node.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._staged: dict[BlockId, set[tuple[str, int]]] = {}

    def __len__(self) -> int:
        return len(self._staged)

    def stage(self, call: Call, pool: ReplicaPool) -> None:
        """Stages the inputs of a certain call that waits in its queue."""
        if len(pool.num_replicas_on) != 1:
            return
        (node,) = pool.num_replicas_on
        away = [
            tensor
            for tensor in call.operands
            if tensor.block and tensor.node not in (node, "") and tensor.dtype is not DType.RESIDENT
        ]
        if not away or not node:
            return
        replica_id = min(pool.replicas.values(), key=lambda replica: (len(replica.batches), replica.replica_id)).replica_id
        tensors = [tensor for tensor in away if self._add_row(tensor, replica_id)]
        if tensors:
            self._turn.actions.append(StageTensors(replica_id, tensors))

    def _add_row(self, tensor: TensorRef, replica_id: str) -> bool:
        """Adds a staged row. Returns False if it was staged before."""
        rows = self._staged.setdefault((tensor.holder, tensor.block), set())
        row = (replica_id, tensor.offset)
        if row in rows:
            return False
        rows.add(row)
        return True

    def forget(self, blocks: Iterable[BlockId]) -> None:
        """Forgets released blocks."""
        if self._staged:
            for block in blocks:
                self._staged.pop(block, None)

    def replica_left(self, replica_id: str) -> None:
        """Forgets a replica that is gone, and what it had fetched."""
        for block, rows in list(self._staged.items()):
            rows = {row for row in rows if row[0] != replica_id}
            if block[0] == replica_id or not rows:
                del self._staged[block]
            else:
                self._staged[block] = rows
