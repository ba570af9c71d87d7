"""What both halves of an engine share, and what its shell keeps from one engine to the next."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeAlias, TypeVar

from dyorc.config import EngineConfig
from dyorc.engine.block_leases import BlockLeases
from dyorc.engine.engine_statistics import EngineStatistics
from dyorc.engine.events import ReplicasWanted
from dyorc.engine.guessing.speculation import Speculator
from dyorc.engine.interfaces import StepMonitor
from dyorc.engine.queue_disciplines import CallPlacer
from dyorc.engine.timers import Timers
from dyorc.engine.turn import Turn
from dyorc.scaling.model import Observer

V = TypeVar("V")

Key: TypeAlias = tuple[str, Hashable]
"""A program's name, and the identity that equal requests share."""


class KnownInputs(Generic[V]):
    """What is known of inputs that have come before. At most so many are kept, each for a limited time.

    Attributes:
        num_of: How many inputs are known, by program; programs without any are missing.
    """

    def __init__(self) -> None:
        self._kept: dict[Key, tuple[V, int]] = {}
        self.num_of: dict[str, int] = {}

    def keep(self, key: Key, value: V, now_ns: int, until_ns: int, max_kept: int) -> None:
        """Sets the value of a key. Forgets values that are too old, and the oldest if there are more than `max_kept`."""
        self.drop(key)
        while self._kept and (len(self._kept) >= max_kept or next(iter(self._kept.values()))[1] <= now_ns):
            self.drop(next(iter(self._kept)))
        if max_kept:
            self._kept[key] = value, until_ns
            self.num_of[key[0]] = self.num_of.get(key[0], 0) + 1

    def get(self, key: Key, now_ns: int) -> tuple[V, float] | None:
        """Returns what is known, and for how many more seconds it is kept."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        value, until_ns = kept
        if until_ns <= now_ns:
            self.drop(key)
            return None
        return value, (until_ns - now_ns) / 1e9

    def drop(self, key: Key) -> None:
        """Forgets a key, if it is known."""
        if self._kept.pop(key, None) is None:
            return
        self.num_of[key[0]] -= 1
        if not self.num_of[key[0]]:
            del self.num_of[key[0]]


@dataclass(slots=True)
class CrashSuspects:
    """Inputs that may have crashed another process, as `SuspectsReported` named them.

    Attributes:
        suspects: Inputs whose calls run alone, and how that process ended.
        names_inputs_until_ns: Until then, batches name their inputs.
        is_warned: Whether there ever was a report.
    """

    suspects: KnownInputs[str] = field(default_factory=KnownInputs[str])
    names_inputs_until_ns: int = 0
    is_warned: bool = False


@dataclass(slots=True)
class Host:
    """What an engine gets from its shell. An engine that takes over from another gets the same object.

    Attributes:
        statistics: Counts of what was served.
        batch_ids: Numbers for batches. None may be used twice: a replica may still return a batch of an earlier engine.
        refused: Inputs that have cost replicas and are refused now, and how the replicas ended.
        caution: Inputs that may have crashed another process.
        watch: Measures the workflows' steps, if they are measured.
        observer: Gets every arrival, call and end of a request, if scaling needs them.
        wanted: How many replicas each program should have, where that was set.
    """

    statistics: EngineStatistics = field(default_factory=EngineStatistics)
    batch_ids: Iterator[int] = field(default_factory=lambda: count(1))
    refused: KnownInputs[str] = field(default_factory=KnownInputs[str])
    crash_suspects: CrashSuspects = field(default_factory=CrashSuspects)
    step_monitor: StepMonitor | None = None
    observer: Observer | None = None
    wanted: dict[str, ReplicasWanted] = field(default_factory=dict[str, ReplicasWanted])


@dataclass(frozen=True, slots=True)
class EngineContext:
    """What both halves of one engine share.

    Attributes:
        turn: Where the halves meet.
        leases: Which blocks of memory are still needed.
        speculator: Counts and limits guesses.
        placer: Gives calls their places; None: a call has the place of its request.
    """

    config: EngineConfig
    speculator: Speculator
    host: Host
    placer: CallPlacer | None = None
    turn: Turn = field(default_factory=Turn)
    timers: Timers = field(default_factory=Timers)
    leases: BlockLeases = field(default_factory=BlockLeases)
