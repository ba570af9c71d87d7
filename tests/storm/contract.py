"""What the storm knows of a shape and of a fault, and no more."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import psutil

CONNECTION = "connection"
"""The code of a request whose connection broke, or could not be made."""


@dataclass(frozen=True)
class Entrance:
    """Where clients ask.

    Attributes:
        url: The same after a restart as before.
        grpc_address: So is this; empty without gRPC.
        entered: Puts the calling thread where the address means something: into a network namespace, say.
    """

    url: str
    grpc_address: str = ""
    entered: Callable[[], AbstractContextManager[None]] = nullcontext


@dataclass(kw_only=True)
class Fault:
    """What happens to a shape once.

    Attributes:
        name: What it is called on the scorecard, such as ``kill gateway``.
        apply: Does the harm, for as long as it lasts.
        end: Returns once all is as before: what has ended is started again.
        bound_s: How long after the beginning every client has to be answered again, as the documentation says.
        codes: Errors with which requests may fail meanwhile.
        cuts: Entrances whose connections may break.
        pids: Processes whose connections may break, where several share an entrance. None: any of the entrance.
        is_unnoticed: Whether clients are answered while it lasts.
        is_graceful: Whether an answer is owed to requests that began before it.
        hinders_starts: Whether a server that starts while it lasts may fail, as the documentation says.
    """

    name: str
    apply: Callable[[], object]
    end: Callable[[], object] = lambda: None
    bound_s: float
    codes: Collection[str] = ()
    cuts: Collection[int] = ()
    pids: list[int] | None = None
    is_unnoticed: bool = False
    is_graceful: bool = False
    hinders_starts: bool = False


@dataclass
class Findings:
    """What a shape has found wrong with its own processes, in words."""

    leaks: list[str] = field(default_factory=list[str])
    faults: list[str] = field(default_factory=list[str])


class Shape(ABC):
    """A way to run DyOrc.

    Args:
        chance: Draws what faults look like.

    Attributes:
        name: What it is called on the scorecard.
        entrances: Where clients ask; known once it has started.
        folder: Where effects leave their lines.
        arena_folder: Where its processes share memory; None if it does not know.
        findings: What was wrong with its processes so far.
        hindered_until_s: When a fault that hinders starts was last over, by the monotonic clock. Until then a start may fail.
    """

    folder: Path
    arena_folder: Path | None = None
    entrances: Sequence[Entrance]

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.findings = Findings()
        self.hindered_until_s = 0.0
        self._chance = chance
        self._stack = ExitStack()

    @abstractmethod
    def start(self) -> None:
        """Returns once requests are answered."""

    @abstractmethod
    def stop(self) -> None:
        """Ends all by SIGTERM, as its users do, looks at what is left behind, and removes it. Works after half a start, too."""

    @abstractmethod
    def faults(self) -> Mapping[str, Mapping[str, Callable[[], Fault]]]:
        """Returns what can happen now, by the part that it strikes and by name. Faults of different parts may happen together,
        but for those of `turns.WHOLE`."""

    @abstractmethod
    def pids(self) -> dict[str, list[int]]:
        """Returns its processes by their kinds."""

    def arena_owners(self) -> set[int]:
        """Returns the ids of its processes as they see them: those of containers have others inside."""
        return {pid for pids in self.pids().values() for pid in pids}

    @property
    @abstractmethod
    def num_log_lines(self) -> int:
        """How many lines its processes have printed so far, but for what each says at its start."""

    @property
    @abstractmethod
    def log_tail(self) -> str:
        """The last lines, for people."""

    @property
    def why_not(self) -> str:
        """What keeps this machine from running it; empty if nothing does."""
        return ""


def footprint(pid: int) -> tuple[int, int]:
    """Returns how many descriptors and threads a process has; zeros if it has ended."""
    try:
        process = psutil.Process(pid)
        return process.num_fds(), process.num_threads()
    except psutil.Error:
        return 0, 0
