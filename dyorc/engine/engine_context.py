"""What both halves of an engine share."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from dyorc.config import EngineConfig
from dyorc.engine.block_leases import BlockLeases
from dyorc.engine.events import ReplicasWanted
from dyorc.engine.guessing.speculation import Speculator
from dyorc.engine.interfaces import StepMonitor
from dyorc.engine.known_inputs import KnownInputs
from dyorc.engine.statistics import EngineStatistics
from dyorc.engine.timers import Timers
from dyorc.engine.turn import Turn
from dyorc.scaling.model import Observer


@dataclass(slots=True)
class CrashSuspects:
    """What an engine was told (`SuspectsReported`) of inputs that may have ended another process.

    Attributes:
        suspects: Those that run alone, and how that process ended.
        names_inputs_until_ns: Until then, batches name their inputs.
        is_warned: Whether anything was ever told.
    """

    suspects: KnownInputs[str] = field(default_factory=KnownInputs[str])
    names_inputs_until_ns: int = 0
    is_warned: bool = False


@dataclass(slots=True)
class Host:
    """What an engine gets from the shell that hosts it. An engine that takes over from another gets the same object.

    Attributes:
        statistics: Counts of what was served.
        batch_ids: Numbers for batches. None may be used twice: a replica may still answer the batch of an earlier engine.
        refused: Inputs that have cost replicas and are refused now, and how the replicas ended.
        caution: What it was told of inputs that may have ended another process.
        watch: Measures the workflows' steps; None if nothing does.
        observer: Is told what requests do; None as long as nobody wants to know.
        wanted: How many replicas each program is to have, if that was said.
    """

    statistics: EngineStatistics = field(default_factory=EngineStatistics)
    batch_ids: Iterator[int] = field(default_factory=lambda: count(1))
    refused: KnownInputs[str] = field(default_factory=KnownInputs[str])
    caution: CrashSuspects = field(default_factory=CrashSuspects)
    watch: StepMonitor | None = None
    observer: Observer | None = None
    wanted: dict[str, ReplicasWanted] = field(default_factory=dict[str, ReplicasWanted])


@dataclass(frozen=True, slots=True)
class EngineContext:
    """What both halves of one engine share.

    Attributes:
        turn: Where the halves meet.
        leases: Who still needs which block of memory.
        speculator: Keeps count of guesses, and bounds them.
    """

    config: EngineConfig
    speculator: Speculator
    host: Host
    turn: Turn = field(default_factory=Turn)
    timers: Timers = field(default_factory=Timers)
    leases: BlockLeases = field(default_factory=BlockLeases)
