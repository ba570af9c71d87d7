"""Which of a tenant's calls goes first: by what its request has had of replicas' time, or by what it still needs.

A request is due by its priority, deadline and arrival (`QueueOrder.of_request`). A *queue discipline* makes a call that becomes
ready due later by its *lag*; a second of lag counts for as much as a second of waiting, so nothing starves. The lag is fixed when
the call becomes ready, so heaps can hold it. It is less than any priority counts for, and requests whose deadlines are near have
none: these keep their meaning.

Work is replicas' time: a call's part of the time of its batch. What follows a call is estimated from earlier requests of its
workflow that had made about as many calls when they called this program, so a wide fan-out tells itself from a narrow one.

Source: sizes move arrivals in the boost policies of Yu and Scully ("Strongly tail-optimal scheduling in the light-tailed M/G/1",
POMACS 2024); least attained service: Nuyens and Wierman ("The foreground-background queue: a survey", Performance Evaluation
2008).
"""

from collections.abc import Sequence
from typing import Protocol

from dyorc.config import EngineConfig
from dyorc.engine.estimators import Average
from dyorc.engine.model.program_call import Call
from dyorc.engine.model.request_context import QueueOrder, RequestContext, WorkMark
from dyorc.errors import InternalError

_MAX_MARKS = 64
"""Calls of one request from which the estimates learn: its first ones."""
_NS_PER_S = 1e9


class QueueDiscipline(Protocol):
    """How much later than by its request's arrival a call is due."""

    def lag_ns(self, call: Call, left_ns: float, now_ns: int) -> float:
        """Returns the lag, in nanoseconds; the engine cuts it to the bounds.

        Args:
            call: It becomes ready now.
            left_ns: The replicas' time that its request is expected to need from now on, this call included.
        """
        ...


class OldestCall:
    """The call that has been ready for longest goes first, whenever its request came."""

    def lag_ns(self, call: Call, left_ns: float, now_ns: int) -> float:
        return now_ns - call.segment.task.request.arrived_ns


class LeastAttained:
    """A request that has had less of replicas' time goes first."""

    def lag_ns(self, call: Call, left_ns: float, now_ns: int) -> float:
        return call.context.attained_ns


class LeastSlack:
    """A request that still needs more of replicas' time goes first, as if all were due at the same time after their arrival.

    Args:
        max_lag_ns: The lag of a request that needs nothing.
    """

    def __init__(self, max_lag_ns: int) -> None:
        self._max_lag_ns = max_lag_ns

    def lag_ns(self, call: Call, left_ns: float, now_ns: int) -> float:
        return self._max_lag_ns - left_ns


class ShortestRemaining:
    """A request that still needs less of replicas' time goes first."""

    def lag_ns(self, call: Call, left_ns: float, now_ns: int) -> float:
        return left_ns


class CallPlacer:
    """Gives calls their places by a discipline, and learns how much work follows a call.

    Args:
        max_lag_ns: The largest lag.
    """

    def __init__(self, discipline: QueueDiscipline, max_lag_ns: int) -> None:
        self._discipline = discipline
        self._max_lag_ns = max_lag_ns
        self._left_ns: dict[WorkMark, Average] = {}

    def place(self, call: Call, now_ns: int) -> QueueOrder:
        """Returns the place of a certain call that becomes ready now."""
        context = call.context
        order, request = context.order, call.segment.task.request
        if not context.may_lag or call.restores is not None:
            return order
        mark = (context.record.name, call.callee.name, request.num_calls.bit_length())
        if context.marks is None:
            context.marks = []
        if len(context.marks) < _MAX_MARKS:
            context.marks.append((mark, context.attained_ns))
        average = self._left_ns.get(mark)
        lag_ns = self._discipline.lag_ns(call, 0.0 if average is None else average.value, now_ns)
        lag_ns = min(max(0, int(lag_ns)), self._max_lag_ns)
        return QueueOrder(0, order.due_ns + lag_ns, order.deadline_ns, order.arrival) if lag_ns else order

    def batch_done(self, calls: Sequence[Call], execute_s: float) -> None:
        """Counts the time of a batch for its requests."""
        share_ns = int(execute_s * _NS_PER_S / len(calls))
        for call in calls:
            call.context.attained_ns += share_ns

    def request_answered(self, context: RequestContext) -> None:
        """Learns from a request what followed its calls."""
        for mark, attained_ns in context.marks or ():
            average = self._left_ns.get(mark)
            if average is None:
                average = self._left_ns[mark] = Average()
            average.add(context.attained_ns - attained_ns)
        context.marks = None

    def forget(self, workflow: str) -> None:
        """Forgets what followed the calls of a workflow."""
        for mark in [mark for mark in self._left_ns if mark[0] == workflow]:
            del self._left_ns[mark]


def call_placer(config: EngineConfig) -> CallPlacer | None:
    """Returns what places calls; None if all calls of a request have its own place: the oldest request goes first."""
    max_lag_ns = int(config.max_overtaking_s * _NS_PER_S) // 3
    match config.queue_discipline:
        case "oldest_request":
            return None
        case "oldest_call":
            return CallPlacer(OldestCall(), max_lag_ns)
        case "least_attained":
            return CallPlacer(LeastAttained(), max_lag_ns)
        case "least_slack":
            return CallPlacer(LeastSlack(max_lag_ns), max_lag_ns)
        case "shortest_remaining":
            return CallPlacer(ShortestRemaining(), max_lag_ns)
        case _:
            raise InternalError(f"queue discipline {config.queue_discipline!r}")
