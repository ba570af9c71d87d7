"""Parks surplus replicas, and fails calls of programs that have no replica in time.

joined ── serves ──> surplus, idle ──────────────────────────> parked: forgotten here, its tensors stay
             │  ▲                                                 ▲
             ▼  │ wanted again                                    │ its last batch is back
          draining: gets no more batches, runs those it has ──────┘
             ▲
about to end ┘  never resumed
"""

from collections.abc import Callable, Mapping
from heapq import nsmallest

from dyorc.engine.actions import ParkReplica
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.events import ReplicasWanted
from dyorc.engine.model.program_call import Call
from dyorc.engine.scheduling.processes import Process
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import NEVER_NS, Replica
from dyorc.engine.scheduling.retrying import fail
from dyorc.engine.turn import CallUnready
from dyorc.errors import DeadlineError, ScaledToZeroError


class Parking:
    """Keeps as many replicas at work as are wanted.

    Args:
        pools: Programs by name.
        replicas: All replicas by id.
        prefetch_ns: Returns when a busy replica may be sent its next batch.
    """

    def __init__(
        self,
        context: EngineContext,
        pools: Mapping[str, ReplicaPool],
        replicas: dict[str, Replica],
        prefetch_ns: Callable[[Replica], int],
    ) -> None:
        self._turn = context.turn
        self._wanted = context.host.wanted
        self._can_drop = context.config.early_drop
        self._pools = pools
        self._replicas = replicas
        self._prefetch_ns = prefetch_ns
        for event in self._wanted.values():
            self.want(event)

    def want(self, event: ReplicasWanted) -> None:
        """Sets how many replicas a program should have."""
        pool = self._pools.get(event.program)
        if pool is None:
            return
        self._wanted[event.program] = event
        pool.target.set(event, self._turn.now_ns)
        pool.suspects.num_replicas = event.num_warm
        if not event.num_warm:
            pool.clear_load_failures()
        if pool.target.is_off:
            for queue in pool.queues():
                for call in queue.take_out(_can_be_refused):
                    call.wait()
                    self.refuse(call, pool)
        self.balance(pool)

    def program_added(self, program: str) -> None:
        """Applies the target that was set for a program before it was added."""
        if (event := self._wanted.get(program)) is not None:
            self.want(event)

    def program_removed(self, program: str) -> None:
        """Drops the target of a program."""
        self._wanted.pop(program, None)

    def balance(self, pool: ReplicaPool) -> None:
        """Parks or drains surplus replicas, misplaced ones first, then idle ones; resumes draining ones if there are too few.
        Cost: looks at all replicas."""
        num_warm = pool.target.num_warm
        if num_warm is None:
            return
        num_surplus = len(pool.replicas) - num_warm
        if pool.has_process:
            for replica in pool.replicas.values():
                replica.is_surplus = False
        if num_surplus > 0:
            misplaced = pool.target.misplaced
            cost = _free_ns if not pool.has_process else _num_resident_bytes
            surplus = nsmallest(num_surplus, pool.replicas.values(), lambda r: (r.replica_id not in misplaced, cost(r)))
            for replica in surplus:
                if _is_needed(replica):
                    replica.is_surplus = True  # until the chains in its process have ended
                else:
                    self._drain(replica)
        staying = [replica for replica in pool.draining.values() if not replica.is_leaving]
        for replica in staying[: max(0, -num_surplus)]:
            pool.resume(replica, self._prefetch_ns(replica))
        self._turn.touched[pool.program.name] = None

    def park_surplus(self, process: Process) -> None:
        """Parks the surplus replicas of a process whose last resident is gone."""
        for replica in list(process.replicas.values()):
            if replica.is_surplus and not _is_needed(replica):
                self.balance(replica.pool)

    def dismiss(self, replica_id: str) -> None:
        """Gives no more batches to a replica that is about to end; it finishes its own."""
        replica = self._replicas.get(replica_id)
        if replica is None or replica.is_leaving:
            return
        replica.is_leaving = True
        if replica_id in replica.pool.replicas:
            self._drain(replica)
        self.balance(replica.pool)  # another draining replica may be needed now

    def _drain(self, replica: Replica) -> None:
        replica.pool.drain(replica)
        if not replica.batches:
            self.park(replica)

    def park(self, replica: Replica) -> None:
        """Forgets a draining replica that holds no batch. It keeps its tensors."""
        replica.pool.remove(replica)
        del self._replicas[replica.replica_id]
        if replica.process is not None:
            del replica.process.replicas[replica.replica_id]
            replica.process.parked.add(replica.pool.program.name)
            for call in replica.pool.unbind(replica.process.name):
                call.wait()
                self._turn.ended.append(CallUnready(call))
        self._turn.parked.add(replica.replica_id)
        self._turn.actions.append(ParkReplica(replica.replica_id))

    def is_refused(self, call: Call, pool: ReplicaPool) -> bool:
        """Returns whether a call cannot run because a person has scaled its program to zero."""
        return pool.target.is_off and _can_be_refused(call)

    def refuse(self, call: Call, pool: ReplicaPool) -> None:
        """Fails such a call."""
        fail(self._turn, pool, call, ScaledToZeroError.of(pool.program.name))

    def lateness(self, call: Call, pool: ReplicaPool) -> DeadlineError | None:
        """Returns why a call of a program without replicas cannot end in time; None if it may."""
        target, now_ns, deadline_ns = pool.target, self._turn.now_ns, call.context.order.deadline_ns
        if pool.replicas or not target.lead_ns or target.ready_ns(now_ns) <= deadline_ns:
            return None
        if not self._can_drop or not call.context.can_be_dropped:
            return None
        left_s = max(0, deadline_ns - now_ns) / 1e9
        return DeadlineError(f"the request's deadline cannot be met: {self.coldness(pool)}, {left_s:.3g} s were left")

    @staticmethod
    def coldness(pool: ReplicaPool) -> str:
        """Returns why a program's calls cannot run now, if that is because none of its replicas is ready."""
        name, lead_ns = pool.program.name, pool.target.lead_ns
        if pool.replicas:
            return ""
        if pool.target.is_off:
            return f"{ScaledToZeroError.of(name)}"
        if not lead_ns:
            return f"no replica of program {name!r} is ready"
        return f"program {name!r} is cold; a replica takes about {lead_ns / 1e9:.3g} s to be ready"


def _can_be_refused(call: Call) -> bool:
    """Returns whether its client learns of it if a call fails: effects of answered requests wait instead."""
    return not call.segment.task.request.is_answered


def _is_needed(replica: Replica) -> bool:
    """Returns whether chains may go on in a replica's process, so that it is not parked even if it is surplus."""
    process = replica.process
    return process is not None and not replica.is_leaving and (bool(process.residents) or not process.is_free)


def _num_resident_bytes(replica: Replica) -> tuple[bool, int, str]:
    """Returns what parking a replica costs its process; the replicas of one process go together."""
    process = replica.process
    return (False, 0, "") if process is None else (not process.is_leaving, process.num_bytes, process.name)


def _free_ns(replica: Replica) -> int:
    if not replica.batches:
        return 0
    free_ns = replica.expected_free_ns
    return NEVER_NS if free_ns is None else free_ns
