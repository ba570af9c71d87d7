"""The policies that are compared, each as a way to make an engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from dyorc.authoring.decisions import Decision
from dyorc.authoring.program import Program
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.engine.engine import Engine
from dyorc.engine.guessing.prediction import Distribution
from dyorc.engine.model.futures import Outcome
from dyorc.engine.model.journal import Context
from dyorc.errors import InvalidInputError
from dyorc.simulation.oracle_predictor import OraclePredictor
from dyorc.simulation.timer_batching import TimerScheduler

MakeEngine: TypeAlias = Callable[[Sequence[Program], int], Engine]
"""Makes an engine from programs and a seed."""

ORACLE = "oracle"
"""The policy that the others are compared with."""


def _config(*, hold: bool = True, speculation: SpeculationConfig = SpeculationConfig()) -> EngineConfig:  # noqa: B008 (frozen)
    """Returns the engine's defaults, except that long queues are not refused, so that results show them."""
    return EngineConfig(max_requests=2**31, request_timeout_s=1e7, hold=hold, speculation=speculation)


_NO_GUESSES = SpeculationConfig(enabled=False)


def greedy_engine(programs: Sequence[Program], seed: int) -> Engine:
    """Makes an engine without foresight: it forms a batch from what is there when a replica is free."""
    return Engine(_config(hold=False, speculation=_NO_GUESSES), programs)


def holding_engine(programs: Sequence[Program], seed: int) -> Engine:
    """Makes a `greedy` engine whose batches may wait for calls that are about to be ready."""
    return Engine(_config(speculation=_NO_GUESSES), programs)


def speculating_engine(programs: Sequence[Program], seed: int) -> Engine:
    """Makes the engine as it serves."""
    return Engine(_config(), programs)


def oracle_engine(programs: Sequence[Program], seed: int) -> Engine:
    """Makes the same engine, except that it knows every outcome in advance."""
    return Engine(_config(speculation=SpeculationConfig(max_depth=10_000)), programs, predictor=_OraclePredictor())


class _OraclePredictor:
    """Asks the oracle, and learns nothing."""

    def __init__(self) -> None:
        self._oracle = OraclePredictor()

    def predict(self, decision: Decision, context: Context) -> Distribution:
        known = self._oracle.outcome(decision)
        return {} if known is None else {known[0]: 1.0}

    def observe(self, decision: Decision, context: Context, outcome: Outcome) -> None:
        pass


def timer_engine(programs: Sequence[Program], seed: int, wait_s: float = 0.01) -> Engine:
    """Makes an engine that runs its workflows on Ray Serve's batching."""
    make_scheduler = partial(TimerScheduler, wait_s=wait_s, seed=seed)
    return Engine(_config(hold=False, speculation=_NO_GUESSES), programs, make_scheduler=make_scheduler)


POLICIES: dict[str, MakeEngine] = {
    "timer": timer_engine,
    "greedy": greedy_engine,
    "hold": holding_engine,
    "speculate": speculating_engine,
    ORACLE: oracle_engine,
}
"""By name, each adding one idea to the one before it."""


def policy(name: str) -> MakeEngine:
    """Returns how to make the engine of the policy called `name`. ``timer:0.05`` is `timer` with a wait of 0.05 s.

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
    """How many guesses an engine made, and how they turned out."""

    num_speculations: int = 0
    num_commits: int = 0
    num_squashes: int = 0


def guesses(engine: Engine) -> Guesses:
    """Returns an engine's figures on guesses: calls that ran ahead of a decision, and how many were needed."""
    speculator = engine.speculator
    return Guesses(speculator.num_speculations, speculator.num_commits, speculator.num_squashes)
