"""When values are expected, judging by what runs now and how long things took before."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dyorc.authoring.workflow import Workflow
from dyorc.engine.model.calls import Call, CallState
from dyorc.engine.model.futures import Future, FutureState
from dyorc.engine.scheduling.latency import Average

if TYPE_CHECKING:
    from dyorc.engine.scheduling.replica_pools import ReplicaPool

_MAX_LINKS = 16
"""Links of a chain of waiting calls that are followed."""


class GuessAppraiser:
    """Looks ahead.

    Args:
        pools: Programs by name; how long a call of each takes is learned there.
    """

    def __init__(self, pools: "Mapping[str, ReplicaPool]") -> None:
        self._pools = pools
        self._task_ns: dict[Workflow, Average] = {}

    def task_ended(self, workflow: Workflow, duration_ns: int) -> None:
        """Learns how long a task took."""
        average = self._task_ns.get(workflow)
        if average is None:
            average = self._task_ns[workflow] = Average()
        average.add(duration_ns)

    def forget(self, workflow: Workflow) -> None:
        """Forgets a workflow that nobody runs any more."""
        self._task_ns.pop(workflow, None)

    def expected_ns(self, future: Future, now_ns: int) -> int:
        """Returns when the value of a future is expected, not before now. What never ended yet counts as taking no time."""
        return self._expected_ns(future, now_ns, _MAX_LINKS, {})

    def _expected_ns(self, future: Future, now_ns: int, max_links: int, known: dict[Future, int]) -> int:
        if future in known:
            return known[future]
        producer = future.producer
        if future.state is not FutureState.PENDING or producer is None:
            return now_ns
        if not isinstance(producer, Call):
            average = self._task_ns.get(producer.callee)
            return now_ns if average is None else max(now_ns, producer.started_ns + int(average.value))
        if producer.state is not CallState.WAITING:
            return max(now_ns, producer.expected_ns)
        start_ns = now_ns
        if max_links:
            for argument in producer.arguments:
                start_ns = max(start_ns, self._expected_ns(argument.future, now_ns, max_links - 1, known))
        known[future] = start_ns + int(self._pools[producer.callee.name].sojourn_ns.value)
        return known[future]

    def appraise(self, call: Call, now_ns: int) -> tuple[float, int]:
        """Returns the probability that a call will be needed, and when the last decision it depends on is expected."""
        probability, known_ns = 1.0, now_ns
        for point, outcome in call.segment.open_points():
            probability *= point.probabilities.get(outcome, 0.0)
            known_ns = max(known_ns, self.expected_ns(point.decision.ref.future, now_ns))
        return probability, known_ns
