"""Runs the programs that share processes, and keeps what those processes hold: the part of the scheduler that knows residents."""

from collections.abc import Iterable, Mapping, Sequence

from dyorc.core.tensor import BlockId, TensorRef
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.events import ReplicaJoined
from dyorc.engine.model.program_call import Call
from dyorc.engine.scheduling.batch_forming import BatchFormer
from dyorc.engine.scheduling.batch_sending import BatchSender
from dyorc.engine.scheduling.processes import DropReason, Process, Processes
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import Replica
from dyorc.engine.scheduling.resident_forming import ResidentFormer, consumed_by, served_first
from dyorc.engine.scheduling.retrying import RetryPolicy
from dyorc.engine.scheduling.speculation_policy import SpeculationPolicy
from dyorc.engine.turn import CallUnready


class ResidentScheduler:
    """Forms batches of programs that share processes, and drops residents.

    Args:
        pools: Programs by name.
        former: Forms batches wherever nobody shares.
        policy: Says which guesses run.
        sender: Sends the batches.
        retrying: Takes calls that cannot be read out of their queues.

    Attributes:
        processes: The processes, and what they hold.
    """

    def __init__(
        self,
        context: EngineContext,
        pools: Mapping[str, ReplicaPool],
        former: BatchFormer,
        policy: SpeculationPolicy,
        sender: BatchSender,
        retrying: RetryPolicy,
    ) -> None:
        self._turn = context.turn
        self._pools = pools
        self._sender = sender
        self._retrying = retrying
        self.processes = Processes(context.leases, context.host.statistics)
        self._former = ResidentFormer(former, policy, self._make_room, lambda call: self._turn.ended.append(CallUnready(call)))

    # Calls

    def is_bound(self, call: Call, pool: ReplicaPool) -> bool:
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
        pool = self._pools[call.callee.name]
        return self.processes.home_of(call.segment.task, pool) or self.processes.whole_for(pool)

    def bring_together(self, call: Call, residents: Sequence[TensorRef]) -> str:
        """Returns where residents that meet in a call are brought together: in the home of its task, which is chosen now if it
        has none."""
        return self.processes.bring_together(call.segment.task, self._pools[call.callee.name], residents)

    def drain(self, pools: list[ReplicaPool]) -> None:
        """Sends batches of programs that share processes: of each, the program goes first whose last batch is the oldest."""
        now_ns, former = self._turn.now_ns, self._former
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
                        # They are in use, so that the batch keeps them.
                        self.processes.evict(consumed, DropReason.OVERWRITTEN, now_ns)
                        self._retrying.dequeue_unreadable(self._pools)
        groups = {pool.program.group for pool in self._pools.values() if pool.has_process and pool.queue.size}
        for pool in pools:
            is_idle = pool.num_idle and pool.num_idle == len(pool.replicas)
            if pool.suspects.waiting and is_idle and pool.program.group in groups:
                num_waiting = len(pool.suspects)
                pool.release_suspect(now_ns, is_stuck=True)  # what waits has no room, and perhaps never without this chain
                if len(pool.suspects) < num_waiting:
                    self._touch(pool.program.name)

    # What processes hold

    def batch_done(
        self, process: Process, pool: ReplicaPool, calls: Sequence[Call], outputs: Sequence[tuple[TensorRef, ...]]
    ) -> None:
        """Counts the residents that a batch has left, and learns how large they are."""
        for call, returned in zip(calls, outputs, strict=True):
            self.processes.add(process, call, returned)
        if pool.program.signature.outputs.has_residents:
            pool.growth.observe(calls, outputs)
        pool.record.num_rebuilt += bool(calls[0].chain)

    def evict(self, blocks: Iterable[BlockId]) -> None:
        """Drops residents that are to be computed again elsewhere. Calls that wait for them leave their queues."""
        self._drop(blocks, DropReason.MOVED)

    def _drop(self, blocks: Iterable[BlockId], reason: DropReason) -> None:
        self.processes.evict(blocks, reason, self._turn.now_ns)
        self._retrying.dequeue_unreadable(self._pools)
        for pool in self._pools.values():
            if pool.has_process and pool.queue.size:
                self._touch(pool.program.name)

    def _make_room(self, blocks: Iterable[BlockId]) -> None:
        """Drops residents for want of room. Their tasks begin again like new ones, where there is room."""
        blocks = list(blocks)
        self.processes.leave_homes(blocks)
        self._drop(blocks, DropReason.EVICTED)

    def forget(self, blocks: Iterable[BlockId]) -> None:
        """Forgets released residents, and considers programs that have more room now."""
        for process in self.processes.forget(blocks):
            for replica in list(process.replicas.values()):
                pool = replica.pool
                if replica.is_surplus or pool.queue.size or pool.guesses.size or pool.suspects.waiting:
                    self._touch(pool.program.name)

    # Processes

    def join(self, event: ReplicaJoined, replica: Replica) -> None:
        """Puts a replica that has joined into its process, if its program is in one."""
        process = replica.process = self.processes.join(event, replica.pool)
        if process is not None:
            process.replicas[event.replica_id] = replica

    def leave_residents(self, replica: Replica | None) -> None:
        """Has residents made again elsewhere, because their process will end soon."""
        if replica is not None and replica.process is not None and not replica.is_leaving:
            self.evict(list(replica.process.residents))

    def replica_left(self, process: Process) -> None:
        """Considers the programs of a process that has lost a replica. If it was the last, its calls leave their queues."""
        self.free(process)
        if not process.replica_ids:
            self._unbind(process.name)

    def _unbind(self, process: str) -> None:
        """Takes out the calls that wait for a process that is gone."""
        for pool in self._pools.values():
            for call in pool.suspects:
                if call.process == process:
                    call.process = ""  # it makes something again, and may do so anywhere
            for call in pool.unbind(process):
                call.wait()
                self._turn.ended.append(CallUnready(call))

    def free(self, process: Process) -> None:
        """Considers all programs of a process in which a batch has ended."""
        for name in process.freed():
            self._touch(name)

    def _touch(self, program: str) -> None:
        self._turn.touched[program] = None
