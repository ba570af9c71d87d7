"""Simulated calls of programs that read a stream: they work on each part once it has come and, if they yield, once they may send.

A call takes ``base_s`` before its first part, and ``item_s`` for each part. If the program yields, what it makes of a part goes
out then; if not, its result goes out at the end of the stream. Calls of one replica run side by side and do not slow each other
down.
"""

from collections import deque
from collections.abc import Callable, Sequence

from dyorc.core.tensor import TensorRef
from dyorc.engine.actions import CancelBatch, DispatchBatch, FeedPart, GrantParts
from dyorc.engine.events import BatchDone, BatchPart, Event, InputPartsTaken
from dyorc.errors import InternalError
from dyorc.simulation.plain_evaluation import operand_of, tensor_of
from dyorc.simulation.value_draws import Value, value_of
from dyorc.simulation.workload import NS_PER_S, Deployment
from dyorc.simulation.yielding import Schedule

Ended = Callable[[str, list[tuple[TensorRef, ...]], int], None]
"""Told of each call that ends: its program, its result or first part, and how long it has worked, in nanoseconds."""


class _Reading:
    """A call that reads a stream.

    Attributes:
        unread: Parts that have come.
        has_ended: Whether no more will come.
        read: Parts that it has worked on.
        first: What it has sent first, if it yields.
        max_parts: How many parts it may send.
        is_busy: Whether it works on a part, or on its end.
        is_over: Whether it has answered.
        busy_ns: How long it has worked.
    """

    __slots__ = ("action", "busy_ns", "deployment", "first", "has_ended", "is_busy", "is_over", "max_parts", "read", "unread")

    def __init__(self, action: DispatchBatch, deployment: Deployment) -> None:
        self.action = action
        self.deployment = deployment
        self.unread: deque[Value] = deque()
        self.read: list[Value] = []
        self.first: list[tuple[TensorRef, ...]] = []
        self.max_parts = action.max_parts
        self.has_ended = self.is_busy = self.is_over = False
        self.busy_ns = 0

    @property
    def operands(self) -> list[Value]:
        """Its inputs besides the stream."""
        return [operand_of(tensor) for tensor in self.action.operands[0]]


class ReadingCalls:
    """All calls of programs that read a stream, in flight.

    Args:
        deployments: What the programs cost.
        schedule: Of the world.
        link_ns: One way between engine and replica.
    """

    def __init__(self, deployments: Sequence[Deployment], schedule: Schedule, link_ns: int, ended: Ended) -> None:
        self._deployments = {deployment.program.name: deployment for deployment in deployments}
        self._schedule = schedule
        self._link_ns = link_ns
        self._ended = ended
        self._running: dict[int, _Reading] = {}

    def dispatch(self, action: DispatchBatch) -> None:
        """Begins a call. It waits for its first part."""
        self._running[action.batch_id] = _Reading(action, self._deployments[action.program.name])

    def feed(self, action: FeedPart) -> None:
        """Gives a call a part, or the end of its stream.

        Raises:
            InternalError: If the stream has failed.
        """
        running = self._running.get(action.batch_id)
        if action.error is not None:
            raise InternalError(f"a simulated stream failed: {action.error}") from action.error
        if running is None:
            return
        if action.is_end:
            running.has_ended = True
        else:
            running.unread.append(operand_of(action.tensors[0]))
        self._go_on(running, 2 * self._link_ns)

    def grant(self, action: GrantParts) -> None:
        """Lets a call send more."""
        running = self._running.get(action.batch_id)
        if running is not None:
            running.max_parts = action.max_parts
            self._go_on(running, 2 * self._link_ns)

    def cancel(self, action: CancelBatch) -> None:
        """Ends a call; its answer takes the way there and back."""
        running = self._running.get(action.batch_id)
        if running is not None:
            self._schedule(2 * self._link_ns, lambda: self._end(running, ()))

    def _go_on(self, running: _Reading, way_ns: int) -> None:
        """Begins the next part, if it is there and its result may be sent; or the end. What comes of it takes the way as well, if
        the call has waited."""
        if running.is_busy or running.is_over:
            return
        is_streaming = running.action.program.is_streaming
        if running.unread:
            if is_streaming and len(running.read) >= running.max_parts:
                return
            deployment = running.deployment
            work_ns = round(((0.0 if running.read else deployment.base_s) + deployment.item_s) * NS_PER_S)
            running.is_busy = True
            running.busy_ns += work_ns
            self._schedule(way_ns + work_ns, lambda: self._read(running))
        elif running.has_ended:
            running.is_busy = True
            self._schedule(way_ns, lambda: self._end(running, self._result(running)))

    def _read(self, running: _Reading) -> Sequence[Event]:
        """Returns that a part was read, and what the call yields for it."""
        if running.is_over:
            return ()
        action = running.action
        part = running.unread.popleft()
        running.read.append(part)
        running.is_busy = False
        events: list[Event] = [InputPartsTaken(action.replica_id, action.batch_id, 0, len(running.read))]
        if action.program.is_streaming:
            tensors = (tensor_of(value_of(action.program, [part, *running.operands])),)
            running.first = running.first or [tensors]
            events.append(BatchPart(action.replica_id, action.batch_id, len(running.read) - 1, tensors))
        self._go_on(running, 0)
        return events

    @staticmethod
    def _result(running: _Reading) -> tuple[TensorRef, ...]:
        program = running.action.program
        return () if program.is_streaming else (tensor_of(value_of(program, [*running.read, *running.operands])),)

    def _end(self, running: _Reading, outputs: tuple[TensorRef, ...]) -> Sequence[Event]:
        if running.is_over:
            return ()
        running.is_over = True
        action = running.action
        del self._running[action.batch_id]
        if sent := running.first or ([outputs] if outputs else []):
            self._ended(action.program.name, sent, running.busy_ns)
        return (BatchDone(action.replica_id, action.batch_id, [outputs], running.busy_ns / NS_PER_S),)
