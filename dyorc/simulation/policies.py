"""The policies that are compared, each as a way to make an engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from dyorc.authoring.program import Program
from dyorc.config import EngineConfig
from dyorc.engine.engine import Engine
from dyorc.errors import InvalidInputError
from dyorc.simulation.timer_batching import TimerScheduler

MakeEngine: TypeAlias = Callable[[Sequence[Program], int], Engine]
"""From programs and a seed."""

ORACLE = "oracle"
"""The policy that the others are measured by."""

_UNLIMITED = EngineConfig(max_requests=2**31, request_timeout_s=1e7)
"""A queue that is too long shall be seen, not refused."""


def greedy_engine(programs: Sequence[Program], seed: int) -> Engine:
    """The engine without foresight: a batch is formed when a replica is free, from what is there."""
    return Engine(_UNLIMITED, programs)


def timer_engine(programs: Sequence[Program], seed: int, wait_s: float = 0.01) -> Engine:
    """The engine's workflows on Ray Serve's batching."""
    engine = Engine(_UNLIMITED, programs)
    scheduler = TimerScheduler(programs, engine.timers, engine.tasks.call_done, engine._emit, wait_s, seed)  # pyright: ignore[reportPrivateUsage]
    engine.scheduler = scheduler  # pyright: ignore[reportAttributeAccessIssue]
    return engine


POLICIES: dict[str, MakeEngine] = {
    "timer": timer_engine,
    "greedy": greedy_engine,
}
"""By name, each adding one idea to the one before it."""


def policy(name: str) -> MakeEngine:
    """How to make the engine of the policy called `name`. ``timer:0.05`` is `timer` with a wait of 0.05 s.

    Raises:
        InvalidInputError: If there is none.
    """
    if name in POLICIES:
        return POLICIES[name]
    kind, _, wait_s = name.partition(":")
    try:
        if kind == "timer":
            return partial(timer_engine, wait_s=float(wait_s))
    except ValueError:
        pass
    raise InvalidInputError(f"there is no policy {name!r}; there are {', '.join(POLICIES)}, and timer:SECONDS")


@dataclass(frozen=True, slots=True)
class Guesses:
    """How often an engine guessed, and how that went."""

    num_speculations: int = 0
    num_commits: int = 0
    num_squashes: int = 0


def guesses(engine: Engine) -> Guesses:
    """What an engine says of its guesses. A policy without speculation makes none."""
    return Guesses()
