"""Calls that may have ended their replica: they run alone, when that harms nobody else; and inputs that are not run any more.

A call is *suspect* if it was alone on a replica that was lost, or on one that crashed, or on two that were lost for whatever
reason. Who was in its company is suspect, too, and comes back clean. A suspect call that ends another replica is refused, and for
a while so is every other request with the same inputs that comes to the same program.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Generic, TypeAlias, TypeVar

from dyorc.engine.model.calls import Call
from dyorc.engine.scheduling.queues import CallQueue
from dyorc.engine.turn import Turn
from dyorc.errors import SuspectInputError


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


_Key: TypeAlias = tuple[str, Hashable]
"""A program's name, and what equal requests have in common."""


class Refusals:
    """Inputs that have cost replicas, by program. They are forgotten after a while, and the oldest if there are too many.

    Args:
        max_kept: How many, over all programs.
        keep_ns: For how long.
    """

    def __init__(self, turn: Turn, max_kept: int, keep_ns: int) -> None:
        self._max_kept = max_kept
        self._keep_s = keep_ns / 1e9
        self._refused = _Memory[str](turn, max_kept, keep_ns)
        self._deaths = _Memory[int](turn, max_kept, keep_ns)

    @property
    def num_of(self) -> Mapping[str, int]:
        """How many are refused, by program; programs without any are missing."""
        return self._refused.num_of

    def num_deaths(self, call: Call) -> int:
        """A call was alone on a replica that was lost. Returns how many its inputs have cost, with that one."""
        key = _key(call)
        if key is None:
            return call.num_attempts
        known = self._deaths.get(key)
        number = 1 if known is None else known[0] + 1
        self._deaths.keep(key, number)
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
            self._refused.keep(key, reason)
            text += f", nor are equal requests for {self._keep_s:g} s"
        return SuspectInputError(text)

    def check(self, call: Call) -> SuspectInputError | None:
        """Why a call must not run, if so."""
        name = call.callee.name
        if name not in self._refused.num_of:  # what an input is equal to is only looked at if there is something to compare
            return None
        key = _key(call)
        found = None if key is None else self._refused.get(key)
        if found is None:
            return None
        reason, left_s = found
        return SuspectInputError(
            f"program {name!r} lost replicas to an equal request ({reason}); such requests are refused for another {left_s:.0f} s"
        )


def _key(call: Call) -> _Key | None:
    identity = call.standing.identity
    return None if identity is None else (call.callee.name, identity)


V = TypeVar("V")


class _Memory(Generic[V]):
    """What is known of inputs: so many at most, each for the same time, so the oldest come first."""

    def __init__(self, turn: Turn, max_kept: int, keep_ns: int) -> None:
        self._turn = turn
        self._max_kept = max_kept
        self._keep_ns = keep_ns
        self._kept: dict[_Key, tuple[V, int]] = {}
        self.num_of: dict[str, int] = {}

    def keep(self, key: _Key, value: V) -> None:
        """Takes something down, or anew."""
        self.drop(key)
        while self._kept and (len(self._kept) >= self._max_kept or self._is_old(next(iter(self._kept.values())))):
            self.drop(next(iter(self._kept)))
        if self._max_kept:
            self._kept[key] = value, self._turn.now_ns + self._keep_ns
            self.num_of[key[0]] = self.num_of.get(key[0], 0) + 1

    def get(self, key: _Key) -> tuple[V, float] | None:
        """What is known, and for how many seconds more."""
        found = self._kept.get(key)
        if found is not None and self._is_old(found):
            self.drop(key)
            return None
        return None if found is None else (found[0], (found[1] - self._turn.now_ns) / 1e9)

    def drop(self, key: _Key) -> None:
        """Forgets something, if it is known."""
        if self._kept.pop(key, None) is None:
            return
        self.num_of[key[0]] -= 1
        if not self.num_of[key[0]]:
            del self.num_of[key[0]]

    def _is_old(self, kept: tuple[V, int]) -> bool:
        return kept[1] <= self._turn.now_ns
