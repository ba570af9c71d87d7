"""Calls that may have ended their replica: they run alone, when that harms nobody else; and inputs that are not run any more.

A call is *suspect* if it was alone on a replica that was lost, or on one that crashed, or on two that were lost for whatever
reason. Who was in its company is suspect, too, and comes back clean. A suspect call that ends another replica is refused, and for
a while so is every other request with the same inputs that comes to the same program.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from dyorc.engine.known_inputs import Key, KnownInputs
from dyorc.engine.model.calls import Call
from dyorc.engine.scheduling.queues import CallQueue
from dyorc.engine.shared import Shared
from dyorc.errors import SuspectInputError

V = TypeVar("V")


class Suspects:
    """Suspect calls of one program, until they may run: one after the other, the longest waiting first.

    Two that ran at a time could take two replicas along. One may run as soon as another replica is there to serve the other
    calls; where there is only one replica, once no other call waits. No call waits for that longer than `max_wait_ns`.

    Args:
        queue: The program's.
        num_replicas: How many the program is meant to have.
    """

    def __init__(self, queue: CallQueue, num_replicas: int, max_wait_ns: int) -> None:
        self._queue = queue
        self._num_replicas = num_replicas
        self._max_wait_ns = max_wait_ns
        self._waiting: dict[Call, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Call]:
        """Those that wait."""
        return iter(self._waiting)

    def __contains__(self, call: Call) -> bool:
        return call in self._waiting

    def add(self, call: Call, now_ns: int) -> int:
        """A call waits here from now on. Returns until when at most."""
        call.enqueue()
        self._waiting[call] = now_ns + self._max_wait_ns
        return self._waiting[call]

    def withdraw(self, call: Call) -> None:
        """Takes out a call that waits here. The caller gives it another state."""
        del self._waiting[call]

    def take_out(self, is_wanted: Callable[[Call], bool]) -> list[Call]:
        """Takes some calls out for good: they may be added again. The caller gives them another state."""
        calls = [call for call in self._waiting if is_wanted(call)]
        for call in calls:
            del self._waiting[call]
        return calls

    def release(self, num_replicas: int, num_idle: int, now_ns: int) -> None:
        """Hands the next one to the queue, to run alone, if it may run now. None of them may be there, or in a batch.

        Args:
            num_replicas: That are there.
            num_idle: Those of them that hold nothing.
        """
        call, until_ns = next(iter(self._waiting.items()))
        is_last_resort = self._num_replicas == 1 and num_idle > 0 and not len(self._queue)
        if num_replicas > 1 or is_last_resort or (num_replicas and until_ns <= now_ns):
            del self._waiting[call]
            call.wait()
            self._queue.add_retry([call])


class Refusals:
    """Inputs that have cost replicas, by program. They are forgotten after a while, and the oldest if there are too many.

    An engine that takes over from another still refuses what that one refused.
    """

    def __init__(self, shared: Shared) -> None:
        self._turn = shared.turn
        self._max_kept = shared.config.max_refused_inputs
        self._keep_s = shared.config.refuse_inputs_s
        self._refused = shared.host.refused
        self._deaths = KnownInputs[int]()

    @property
    def num_of(self) -> Mapping[str, int]:
        """How many are refused, by program; programs without any are missing."""
        return self._refused.num_of

    def num_deaths(self, call: Call) -> int:
        """A call was alone on a replica that was lost. Returns how many its inputs have cost, with that one."""
        key = _key(call)
        if key is None:
            return call.num_attempts
        known = self._deaths.get(key, self._turn.now_ns)
        number = 1 if known is None else known[0] + 1
        self._keep(self._deaths, key, number)
        return max(call.num_attempts, number)

    def clear(self, call: Call) -> None:
        """A suspect call has run: its inputs are harmless."""
        key = _key(call)
        if key is not None:
            self._deaths.drop(key)

    def add(self, call: Call, reason: str) -> SuspectInputError:
        """A call has cost its last replica. Returns what to tell its caller."""
        name, key = call.callee.name, _key(call)
        replicas = f"{call.num_attempts} replicas" if call.num_attempts > 1 else "a replica"
        text = f"program {name!r} lost {replicas} while running this call ({reason}); it is not run again"
        if key is not None and self._max_kept:
            self._keep(self._refused, key, reason)
            text += f", nor are equal requests for {self._keep_s:g} s"
        return SuspectInputError(text)

    def check(self, call: Call) -> SuspectInputError | None:
        """Why a call must not run, if so."""
        name = call.callee.name
        if name not in self._refused.num_of:  # what an input is equal to is only looked at if there is something to compare
            return None
        key = _key(call)
        found = None if key is None else self._refused.get(key, self._turn.now_ns)
        if found is None:
            return None
        reason, left_s = found
        return SuspectInputError(
            f"program {name!r} lost replicas to an equal request ({reason}); such requests are refused for another {left_s:.0f} s"
        )

    def _keep(self, known: KnownInputs[V], key: Key, value: V) -> None:
        now_ns = self._turn.now_ns
        known.keep(key, value, now_ns, now_ns + int(self._keep_s * 1e9), self._max_kept)


def _key(call: Call) -> Key | None:
    identity = call.standing.identity
    return None if identity is None else (call.callee.name, identity)
