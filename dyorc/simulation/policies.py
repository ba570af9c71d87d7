"""The policies that are compared, each as a way to make an engine."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, get_args

from dyorc.authoring.program import Program
from dyorc.config import EngineConfig, QueueDisciplineName, SpeculationConfig
from dyorc.engine.engine import Engine
from dyorc.errors import InvalidInputError
from dyorc.simulation.plain_evaluation import OraclePredictor
from dyorc.simulation.timer_batching import TimerScheduler

MakeEngine: TypeAlias = Callable[[Sequence[Program], int], Engine]
"""Makes an engine from programs and a seed."""

DISCIPLINES: tuple[str, ...] = get_args(QueueDisciplineName)
"""The queue disciplines, by their names in the settings."""
ORACLE = "oracle"
"""The policy that the others are compared with."""


def _config(*, speculation: SpeculationConfig = SpeculationConfig(), **options: Any) -> EngineConfig:  # noqa: B008 (frozen)
    """Returns the engine's defaults, except that long queues are not refused, so that results show them."""
    return EngineConfig(max_requests=2**31, request_timeout_s=1e7, speculation=speculation, **options)


_NO_GUESSES = SpeculationConfig(enabled=False)


def greedy_engine(programs: Sequence[Program], seed: int) -> Engine:
    """Makes an engine without foresight: it forms a batch from what is there when a replica is free."""
    return Engine(_config(hold=False, speculation=_NO_GUESSES), programs)


def holding_engine(programs: Sequence[Program], seed: int) -> Engine:
    """Makes a `greedy` engine whose batches may wait for calls that are about to be ready."""
    return Engine(_config(speculation=_NO_GUESSES), programs)


def speculating_engine(programs: Sequence[Program], seed: int, **options: Any) -> Engine:
    """Makes the engine as it serves.

    Args:
        options: Other values of its settings than the defaults.
    """
    return Engine(_config(**options), programs)


def oracle_engine(programs: Sequence[Program], seed: int) -> Engine:
    """Makes the same engine, except that it knows every outcome in advance."""
    return Engine(_config(speculation=SpeculationConfig(max_depth=10_000)), programs, predictor=OraclePredictor())


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
    """Returns what makes the engine of the policy called `name`. ``timer:0.05`` is `timer` with a wait of 0.05 s, and
    ``speculate:least_slack`` is `speculate` with that queue discipline.

    Raises:
        InvalidInputError: If the policy is unknown.
    """
    if name in POLICIES:
        return POLICIES[name]
    kind, _, rest = name.partition(":")
    if kind == "speculate" and rest in DISCIPLINES:
        return partial(speculating_engine, queue_discipline=rest)
    try:
        if kind == "timer":
            return partial(timer_engine, wait_s=float(rest))
    except ValueError:
        pass
    raise InvalidInputError(
        f"there is no policy {name!r}; there are {', '.join(POLICIES)}, timer:SECONDS, and speculate:DISCIPLINE with one of "
        f"{', '.join(DISCIPLINES)}"
    )
