"""Simulated calls of programs that yield: their parts come one after another, as far as somebody reads.

A call takes ``base_s + item_s`` seconds until its first part, and ``item_s`` for each further one. Calls of one replica run side
by side and do not slow each other down: such programs mostly wait for something else. A call that may not send its next part
begins it once it may.
"""

from collections.abc import Callable, Sequence

from dyorc.core.tensor import TensorRef
from dyorc.engine.actions import CancelBatch, DispatchBatch, GrantParts
from dyorc.engine.events import BatchDone, BatchPart, Event
from dyorc.simulation.plain_evaluation import tensor_of
from dyorc.simulation.workload import NS_PER_S, Deployment

Schedule = Callable[[int, Callable[[], Sequence[Event]]], None]
"""Lets something happen after a time in nanoseconds; it returns events for the engine."""


class _Running:
    """A call that yields.

    Attributes:
        parts: All that it will yield.
        num_sent: How many of them it has sent.
        max_parts: How many it may send.
        is_waiting: Whether it may not send its next part yet.
        is_over: Whether it has answered.
        busy_ns: How long it has worked.
    """

    __slots__ = ("action", "busy_ns", "deployment", "is_over", "is_waiting", "max_parts", "num_sent", "parts")

    def __init__(self, action: DispatchBatch, deployment: Deployment, parts: Sequence[tuple[TensorRef, ...]]) -> None:
        self.action = action
        self.deployment = deployment
        self.parts = parts
        self.num_sent = 0
        self.max_parts = action.max_parts
        self.is_waiting = self.is_over = False
        self.busy_ns = 0


class YieldingCalls:
    """All calls of programs that yield, in flight.

    Args:
        deployments: What the programs cost.
        schedule: Of the world.
        link_ns: One way between engine and replica.
    """

    def __init__(self, deployments: Sequence[Deployment], schedule: Schedule, link_ns: int) -> None:
        self._deployments = {deployment.program.name: deployment for deployment in deployments}
        self._schedule = schedule
        self._link_ns = link_ns
        self._running: dict[int, _Running] = {}

    def dispatch(self, action: DispatchBatch) -> tuple[list[tuple[TensorRef, ...]], int]:
        """Begins a call. Returns its parts, and how long it will work in all, in nanoseconds."""
        deployment = self._deployments[action.program.name]
        parts = [(tensor_of(value),) for value in deployment.parts_of(action.operands[0])]
        running = self._running[action.batch_id] = _Running(action, deployment, parts)
        base_ns, item_ns = self._times_ns(deployment)
        self._work(running, 2 * self._link_ns, base_ns + item_ns)
        return parts, base_ns + item_ns * len(parts)

    @staticmethod
    def _times_ns(deployment: Deployment) -> tuple[int, int]:
        return round(deployment.base_s * NS_PER_S), round(deployment.item_s * NS_PER_S)

    def _work(self, running: _Running, way_ns: int, work_ns: int) -> None:
        """Works on the next part; it reaches the engine after that and the way."""
        running.busy_ns += work_ns
        self._schedule(way_ns + work_ns, lambda: self._arrive(running))

    def _arrive(self, running: _Running) -> Sequence[Event]:
        """Returns the next part, and the end after the last one."""
        if running.is_over:
            return ()
        action, index = running.action, running.num_sent
        running.num_sent += 1
        part = BatchPart(action.replica_id, action.batch_id, index, running.parts[index])
        if running.num_sent == len(running.parts):
            return part, self._end(running)
        if running.num_sent < running.max_parts:
            self._work(running, 0, self._times_ns(running.deployment)[1])
        else:
            running.is_waiting = True
        return (part,)

    def _end(self, running: _Running) -> BatchDone:
        running.is_over = True
        action = running.action
        del self._running[action.batch_id]
        return BatchDone(action.replica_id, action.batch_id, [()], running.busy_ns / NS_PER_S)

    def grant(self, action: GrantParts) -> None:
        """Lets a call send more."""
        running = self._running.get(action.batch_id)
        if running is None:
            return
        running.max_parts = action.max_parts
        if running.is_waiting:
            running.is_waiting = False
            self._work(running, 2 * self._link_ns, self._times_ns(running.deployment)[1])

    def cancel(self, action: CancelBatch) -> None:
        """Ends a call; its answer takes the way there and back."""
        running = self._running.get(action.batch_id)
        if running is not None:
            self._schedule(2 * self._link_ns, lambda: () if running.is_over else (self._end(running),))
