"""Calls that may have crashed their replica, which run alone when no other call is at risk; and inputs that are refused.

A call is *suspect* if it was alone on a replica that was lost, or on one that crashed, or on two that were lost for any reason.
Calls in the same batch are suspect as well, until they have run without harm; so are calls with inputs that another process was
running when it ended (`SuspectsReported`). A suspect call that costs another replica is refused, and so, for a while, are all
other requests with the same inputs to the same program. Replicas that equal calls lose while they run side by side count as one
loss: none of these calls has been tried alone yet, and whatever ended the replicas from outside may have ended them all.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from dyorc.engine.engine_context import EngineContext, Key, KnownInputs
from dyorc.engine.events import SuspectsReported
from dyorc.engine.model.program_call import Call
from dyorc.engine.model.request_context import RequestContext
from dyorc.engine.scheduling.queues import CallQueue
from dyorc.errors import SuspectInputError

V = TypeVar("V")
_NEVER_NS = 2**62


class SuspectQueue:
    """Suspect calls of one program that wait until they may run: one at a time, the longest waiting first.

    Two at once could cost two replicas. One may run as soon as another replica is there to serve the other calls or, if the
    program has only one replica, once no other call waits. Where residents are held, it also waits until only suspects would lose
    theirs. No suspect waits longer than `max_wait_ns` for that. Where calls run side by side, it needs a replica without any
    and gets no other call meanwhile; after `max_wait_ns`, one gets no more calls until it runs nothing.

    Args:
        queue: The program's queue of calls that can run anywhere.
        queue_of: Returns the queue that a call enters.

    Attributes:
        num_replicas: How many replicas the program is meant to have.
        waiting: The calls, and when the wait of each ends at the latest.
    """

    def __init__(self, queue: CallQueue, queue_of: Callable[[Call], CallQueue], num_replicas: int, max_wait_ns: int) -> None:
        self._queue = queue
        self._queue_of = queue_of
        self.num_replicas = num_replicas
        self._max_wait_ns = max_wait_ns
        self.waiting: dict[Call, int] = {}

    def __len__(self) -> int:
        return len(self.waiting)

    def __iter__(self) -> Iterator[Call]:
        """Yields the waiting calls."""
        return iter(self.waiting)

    def __contains__(self, call: Call) -> bool:
        return call in self.waiting

    def add(self, call: Call, now_ns: int) -> int:
        """Makes a call wait here. Returns the latest time at which its wait ends."""
        call.enqueue()
        self.waiting[call] = now_ns + self._max_wait_ns
        return self.waiting[call]

    def withdraw(self, call: Call) -> None:
        """Removes a waiting call. The caller sets its new state."""
        del self.waiting[call]

    def take_out(self, is_wanted: Callable[[Call], bool]) -> list[Call]:
        """Removes and returns all wanted calls. The caller sets their new state, and may add them again."""
        calls = [call for call in self.waiting if is_wanted(call)]
        for call in calls:
            del self.waiting[call]
        return calls

    def is_due(self, now_ns: int) -> bool:
        """Returns whether the longest waiting call has waited for as long as one may."""
        return next(iter(self.waiting.values()), _NEVER_NS) <= now_ns

    def release(self, num_replicas: int, num_idle: int, now_ns: int, *, is_safe: bool, is_stuck: bool) -> None:
        """Hands the next call to the queue, to run alone, if it may run now. No other suspect may be queued or in a batch.

        Args:
            num_replicas: How many replicas are there now.
            num_idle: How many of them hold no batch.
            is_safe: Whether it can run where no other call has anything to lose.
            is_stuck: Whether no other call can run, though some wait.
        """
        call, until_ns = next(iter(self.waiting.items()))
        is_last_resort = self.num_replicas <= 1 and num_idle > 0 and not self._queue.size
        if (is_safe and (num_replicas > 1 or is_last_resort)) or is_stuck or (num_replicas and until_ns <= now_ns):
            del self.waiting[call]
            call.wait()
            self._queue_of(call).add_retry([call])


@dataclass(frozen=True, slots=True)
class _Losses:
    """The replicas that calls with equal inputs have lost while they ran alone there.

    Attributes:
        count: The losses that tell something: a call's loss adds to them only if the call was sent after the last was known.
        num_replicas: All replicas that were lost.
        known_ns: When the last loss of `count` became known.
    """

    count: int
    num_replicas: int
    known_ns: int


class Refusals:
    """Inputs that have cost replicas. Each is forgotten after a while; if there are too many, the oldest goes first.

    An engine that takes over from another keeps refusing the inputs that the other refused.
    """

    def __init__(self, context: EngineContext) -> None:
        self._turn = context.turn
        self._max_kept = context.config.max_refused_inputs
        self._keep_s = context.config.refuse_inputs_s
        self._refused = context.host.refused
        self._crash_suspects = context.host.crash_suspects
        self._losses = KnownInputs[_Losses]()

    @property
    def num_of(self) -> Mapping[str, int]:
        """How many inputs are refused, by program; programs without any are missing."""
        return self._refused.num_of

    @property
    def are_shared(self) -> bool:
        """Whether inputs may have crashed other processes: then they may crash this one, with all programs that it runs."""
        return self._crash_suspects.is_warned

    def add_reported(self, report: SuspectsReported) -> None:
        """Adds inputs that may have crashed another process."""
        now_ns, crash_suspects = self._turn.now_ns, self._crash_suspects
        crash_suspects.is_warned = True
        crash_suspects.names_inputs_until_ns = max(crash_suspects.names_inputs_until_ns, report.names_inputs_until_ns)
        for known, reported in ((crash_suspects.suspects, report.suspects), (self._refused, report.refused)):
            for suspect in reported:
                known.keep((suspect.program, suspect.identity), suspect.reason, now_ns, suspect.until_ns, self._max_kept)

    def is_suspect(self, call: Call) -> bool:
        """Returns whether a call's inputs may have crashed another process."""
        suspects = self._crash_suspects.suspects
        if call.callee.name not in suspects.num_of:
            return False
        key = _key(call)
        return key is not None and suspects.get(key, self._turn.now_ns) is not None

    def count_loss(self, call: Call, dispatched_ns: int) -> int:
        """Counts a call that was alone on a lost replica.

        Args:
            dispatched_ns: When the call was sent there.

        Returns:
            How many losses count against the call: of its own, or of calls with equal inputs. Replicas that equal calls lost
            side by side count once: whatever ended them from outside, none of the calls was tried again in between.
        """
        key, now_ns = _key(call), self._turn.now_ns
        if key is None:
            return call.num_attempts
        known = self._losses.get(key, now_ns)
        before = _Losses(0, 0, 0) if known is None else known[0]
        is_further = dispatched_ns >= before.known_ns
        count, known_ns = (before.count + 1, now_ns) if is_further else (before.count, before.known_ns)
        self._keep(self._losses, key, _Losses(count, before.num_replicas + 1, known_ns))
        return max(call.num_attempts, count)

    def clear(self, call: Call) -> None:
        """Forgets the replicas that a suspect call's inputs have cost here, because it has run."""
        key = _key(call)
        if key is not None:
            self._losses.drop(key)

    def clear_request(self, context: RequestContext) -> None:
        """Clears the inputs of a request that has ended well, for the programs that it has tried."""
        for name in context.tried:
            self._losses.drop((name, context.identity))
            self._crash_suspects.suspects.drop((name, context.identity))

    def add(self, call: Call, reason: str) -> SuspectInputError:
        """Refuses the inputs of a call from now on. Returns the error for its caller."""
        name, key = call.callee.name, _key(call)
        known = None if key is None else self._losses.get(key, self._turn.now_ns)
        num_replicas = call.num_attempts if known is None else max(call.num_attempts, known[0].num_replicas)
        replicas = f"{num_replicas} replicas" if num_replicas > 1 else "a replica"
        running = "this call" if num_replicas == call.num_attempts else "this call and equal ones"
        text = f"program {name!r} lost {replicas} while running {running} ({reason}); it is not run again"
        if key is not None and self._max_kept:
            self._keep(self._refused, key, reason)
            text += f", nor are equal requests for {self._keep_s:g} s"
        return SuspectInputError(text)

    def check(self, call: Call) -> SuspectInputError | None:
        """Returns why a call must not run; None if it may."""
        name = call.callee.name
        if name not in self._refused.num_of:  # comparing inputs is expensive, so it is done only if some are refused
            return None
        key = _key(call)
        refusal = None if key is None else self._refused.get(key, self._turn.now_ns)
        if refusal is None:
            return None
        reason, left_s = refusal
        return SuspectInputError(
            f"program {name!r} lost replicas to an equal request ({reason}); such requests are refused for another {left_s:.0f} s"
        )

    def _keep(self, known: KnownInputs[V], key: Key, value: V) -> None:
        now_ns = self._turn.now_ns
        known.keep(key, value, now_ns, now_ns + int(self._keep_s * 1e9), self._max_kept)


def _key(call: Call) -> Key | None:
    identity = call.context.identity
    return None if identity is None else (call.callee.name, identity)
