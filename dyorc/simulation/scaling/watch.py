"""Writes down what becomes of the requests of a trace."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from dyorc.core.tensor import TensorRef
from dyorc.engine.events import RequestArrived
from dyorc.scaling.model import Observer

BIN_NS = 10_000_000_000
"""Width of the bins in which demand is counted."""


class ReplicaWatch:
    """Sees what happens in a world.

    Attributes:
        workflows: Each request's workflow, by request.
        arrived_ns: When each arrived.
        latencies_ns: How long each took.
        busy_ns: Replicas' time for the batches sent in each bin.
    """

    def __init__(self) -> None:
        self.workflows: dict[int, str] = {}
        self.arrived_ns: dict[int, int] = {}
        self.latencies_ns: dict[int, int] = {}
        self.busy_ns = Counter[int]()
        self._now_ns = 0

    def arrived(self, event: RequestArrived, now_ns: int) -> None:
        self.workflows[event.request_id] = event.workflow.name
        self.arrived_ns[event.request_id] = self._now_ns = now_ns

    def dispatched(self, program: str, outputs: Sequence[tuple[TensorRef, ...]], execute_ns: int) -> None:
        self.busy_ns[self._now_ns // BIN_NS] += execute_ns

    def answered(self, request_id: int, tensors: tuple[TensorRef, ...], now_ns: int) -> None:
        self.latencies_ns[request_id] = now_ns - self.arrived_ns[request_id]


class Calls:
    """Writes down when requests call programs, and passes on what it is told.

    Attributes:
        at_ns: When a program was called, in order, by program.
    """

    def __init__(self, following: Observer | None = None) -> None:
        self.at_ns: defaultdict[str, list[int]] = defaultdict(list)
        self._following = following
        self._steps: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        self._ended_ns: dict[int, int] = {}

    def arrived(self, request_id: int, workflow: str, now_ns: int) -> None:
        """A request came."""
        if self._following is not None:
            self._following.arrived(request_id, workflow, now_ns)

    def called(self, request_id: int, program: str, now_ns: int) -> None:
        """A request called a program."""
        self.at_ns[program].append(now_ns)
        self._steps[request_id].append((program, now_ns))
        if self._following is not None:
            self._following.called(request_id, program, now_ns)

    def ended(self, request_id: int, now_ns: int) -> None:
        """A request ended."""
        self._ended_ns[request_id] = now_ns
        if self._following is not None:
            self._following.ended(request_id, now_ns)

    def spans_ns(self, request_id: int) -> Iterator[tuple[str, int, int]]:
        """Yields the programs that a request called, each with when it did and when it called the next, or ended."""
        steps = self._steps[request_id]
        ends = [*(at_ns for _, at_ns in steps[1:]), self._ended_ns.get(request_id, 0)]
        for (program, at_ns), end_ns in zip(steps, ends, strict=True):
            yield program, at_ns, end_ns
