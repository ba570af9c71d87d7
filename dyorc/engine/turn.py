"""One turn of the engine: what exists only while it handles the events that came together.

The two halves meet here instead of calling each other back. The scheduler records how calls ended; the tasks read that, step
workflows, and hand ready calls to the scheduler, which forms batches. `Engine.handle` alternates between them until no work is
left; the `drain` of each half says in which order it works through its lists.
"""

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from dyorc.core.tensor import TensorRef
from dyorc.engine.actions import Action
from dyorc.engine.model.futures import FAILED, Future, Waiter, fill_all
from dyorc.engine.model.part_list import Cell, PartList
from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.model.request_context import RequestContext
from dyorc.engine.model.request_tree import Needer, Request, Restoration
from dyorc.errors import DeadlineError, DyOrcError


class CallDone(msgspec.Struct, frozen=True, gc=False):
    """A call ran."""

    call: Call
    outputs: tuple[TensorRef, ...]


class CallsDone(msgspec.Struct, frozen=True, gc=False):
    """The calls of a batch ran; `outputs` are in their order."""

    calls: Sequence[Call]
    outputs: Sequence[tuple[TensorRef, ...]]


class CallFailed(msgspec.Struct, frozen=True):
    """A call has failed."""

    call: Call
    error: DyOrcError


class CallLate(msgspec.Struct, frozen=True):
    """A call was not run because its result would come too late; its request fails with this error."""

    call: Call
    error: DeadlineError


class CallDeferred(msgspec.Struct, frozen=True):
    """A guess failed on its replica. It is not retried until it is certain."""

    call: Call


class CallUnready(msgspec.Struct, frozen=True):
    """A call left its queue or its batch because tensors were lost; it has to be made ready again."""

    call: Call


class CallStarted(msgspec.Struct, frozen=True, gc=False):
    """A call that reads streams, or yields one that others take whole, was sent to a replica."""

    call: Call


class CallPart(msgspec.Struct, frozen=True, gc=False):
    """A running call has yielded a part."""

    call: Call
    index: int
    tensors: tuple[TensorRef, ...]
    digest: bytes


class InputTaken(msgspec.Struct, frozen=True, gc=False):
    """A running call has read so many parts of one of its streams."""

    call: Call
    stream: int
    num_taken: int


CallEnd: TypeAlias = (
    CallDone | CallsDone | CallFailed | CallLate | CallDeferred | CallUnready | CallStarted | CallPart | InputTaken
)


class StepLimits:
    """How many steps requests may take in a turn before the rest waits for the next.

    All progress a little in each turn. What is left goes to the oldest requests: if all wide requests went on equally, each would
    be as late as the last of them, and turns would last the longer the more there are.

    Args:
        max_steps: Of one request.

    Attributes:
        per_request: Of one request.
        any_case: Of each request, however many there are.
        shared: Of all requests together, beyond that.
    """

    __slots__ = ("any_case", "per_request", "shared")

    def __init__(self, max_steps: int) -> None:
        self.per_request = max_steps
        self.any_case = max(1, max_steps // 8)
        self.shared = 2 * max_steps


class Turn:
    """Everything that must be empty before `Engine.handle` returns, and the time of the turn.

    Attributes:
        now_ns: When the current events happened.
        actions: What the shell has to do, in order.
        ended: How calls ended, and what running ones have yielded and read, for the tasks.
        ready: Calls whose inputs are all there, or have failed.
        restored: What needs lost tensors that are there again or, with an error, cannot be restored.
        settled: Futures whose dependents have not been notified yet.
        runnable: Waiters that have everything they waited for.
        issued: New calls that wait for nothing. They are made ready once no waiter can go on, so that calls that are alike are
            checked and queued together, whichever tasks made them.
        resumed: Lists of parts whose producers may go on, because they were read further.
        num_steps: How many steps each request has taken in this turn.
        num_shared: How many of them were beyond the steps that each request may take in any case (`StepLimits`).
        postponed: Waiters that continue in the next turn, because their request has used up its share of this one. Only this list
            may have entries when the turn ends.
        restorations: Restorations that have to be started or ended.
        swept: Requests in which a restoration may have become unnecessary.
        releasable: Requests that may keep tensors that are no longer needed.
        passed: Parts that a running call has read, each with its request: perhaps nothing needs them now.
        parked: Replicas that were parked in this turn. That they are ready is old news then.
        touched: Programs, by name, that may form batches because something happened to them.
        queued: Calls with stored inputs that have just been queued, and may have them sent ahead.
        harmless: Requests that have ended well, though their inputs may have ended another process.
    """

    __slots__ = (
        "actions", "ended", "harmless", "issued", "now_ns", "num_shared", "num_steps", "parked", "passed", "postponed",
        "queued", "ready", "releasable", "restorations", "restored", "resumed", "runnable", "settled", "swept", "touched",
    )  # fmt: skip

    def __init__(self) -> None:
        self.now_ns = 0
        self.actions: list[Action] = []
        self.ended: deque[CallEnd] = deque()
        self.ready: deque[Call] = deque()
        self.restored: deque[tuple[Needer, DyOrcError | None]] = deque()
        self.settled: deque[Future] = deque()
        self.runnable: deque[Waiter] = deque()
        self.issued: list[Call] = []
        self.resumed: deque[PartList] = deque()
        self.num_steps: dict[Request, int] = {}
        self.num_shared = 0
        self.postponed: dict[Request, list[Waiter]] = {}
        self.restorations: deque[Restoration] = deque()
        self.swept: dict[Request, None] = {}
        self.releasable: dict[Request, None] = {}
        self.passed: dict[Cell, Request] = {}
        self.parked: set[str] = set()
        self.touched: dict[str, None] = {}
        self.queued: list[Call] = []
        self.harmless: list[RequestContext] = []

    def begin(self, now_ns: int, limits: "StepLimits") -> None:
        """Begins another turn with waiters that earlier ones postponed, of each request as many as it may step in a turn."""
        self.now_ns = now_ns
        if not self.postponed:
            return
        postponed, self.postponed = self.postponed, {}
        num_left = limits.shared
        for request in sorted(postponed, key=lambda request: request.context.order):
            waiters = postponed[request]
            number = min(len(waiters), limits.per_request, limits.any_case + num_left)
            num_left -= max(0, number - limits.any_case)
            self.runnable.extend(waiters[:number])
            if len(waiters) > number:
                self.postponed[request] = waiters[number:]
            self.releasable[request] = None  # none of its tensors were released while these waited

    def has_work(self) -> bool:
        """Returns whether either half has work left."""
        return bool(
            self.ended
            or self.settled
            or self.runnable
            or self.issued
            or self.touched
            or self.ready
            or self.restored
            or self.resumed
            or self.restorations
            or self.swept
            or self.releasable
            or self.passed
            or self.queued
            or self.harmless
        )

    def finish(self) -> list[Action]:
        """Returns the actions of the turn and clears them."""
        self.num_shared = 0
        self.num_steps.clear()  # it would keep requests alive that have ended
        self.parked.clear()
        actions, self.actions = self.actions, []
        return actions

    def settle(self, future: Future, tensors: tuple[TensorRef, ...]) -> None:
        """Settles a future with its value."""
        future.fill(tensors)
        self.settled.append(future)

    def settle_all(self, calls: Sequence[Call], outputs: Sequence[tuple[TensorRef, ...]]) -> None:
        """Settles the futures of calls with their values."""
        futures = [call.future for call in calls]
        fill_all(futures, outputs)
        self.settled.extend(futures)

    def fail(self, future: Future, error: DyOrcError) -> None:
        """Settles a future with an error."""
        future.state = FAILED
        future.error = error
        self.settled.append(future)

    def want(self, future: Future) -> None:
        """Notes that something waits for a future. If a queued call makes that, others of its program may have to make way."""
        call = future.producer
        if isinstance(call, Call) and call.parts is not None and call.state is CallState.QUEUED:
            call.segment.task.request.await_place(call)
            self.touched[call.callee.name] = None

    def notify(self, waiter: Waiter) -> None:
        """Counts a value that a waiter has waited for, and continues the waiter after the last one."""
        waiter.num_awaited -= 1
        if not waiter.num_awaited:
            self.runnable.append(waiter)

    def __repr__(self) -> str:
        left = {name: getattr(self, name) for name in self.__slots__ if name != "now_ns" and getattr(self, name)}
        return f"<turn at {self.now_ns} ns: {left}>"
