"""Scaling at run time: asks the policy how many replicas there should be, and remembers what it decided and learned."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec
import structlog

from dyorc.config import ScalingConfig
from dyorc.errors import DyOrcError, InvalidInputError, UnknownModelError
from dyorc.scaling.model import Bounds, ProgramLoad, Wish
from dyorc.scaling.policy import PredictivePolicy
from dyorc.scaling.traffic import Traffic

_log = structlog.get_logger("dyorc.scaling")

_NUM_DECISIONS = 200
"""Decisions that are remembered."""
_KEEP_S = 60.0
"""How often what was learned is written down."""


class Plant(Protocol):
    """What is scaled."""

    def loads(self) -> Sequence[ProgramLoad]:
        """Returns every program as it is now."""
        ...

    def want(self, wish: Wish) -> None:
        """Carries a wish out, in its own time."""
        ...


class Notes(Protocol):
    """Where what was learned outlives the server; see `dyorc.store.base.Notes`."""

    async def note(self, name: str, value: bytes) -> None: ...

    async def noted(self, name: str) -> bytes | None: ...


class _Learned(msgspec.Struct):
    """A note: what was learned, and when (Unix time in seconds)."""

    at_s: float
    state: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Decision:
    """A wish that was carried out. `at_s` is Unix time in seconds."""

    at_s: float
    wish: Wish

    def as_report(self) -> dict[str, Any]:
        """Returns it as plain values."""
        wish = self.wish
        return {
            "at_s": self.at_s,
            "program": wish.program,
            "num_warm": wish.num_warm,
            "num_parked": wish.num_parked,
            "reason": wish.reason,
        }


class Scaler:
    """Has the policy decide every interval, and at once when traffic makes a program urgent that is not ready.

    Programs with a fixed number of replicas are left alone until somebody sets another by hand: all that Ray Serve keeps take
    batches.

    Attributes:
        traffic: What the engine is observed by.

    Args:
        is_needed: Whether the number of replicas of some program is not fixed.
    """

    def __init__(self, config: ScalingConfig, *, is_needed: bool = True) -> None:
        self._is_needed = is_needed
        self.traffic = Traffic(season_s=config.season_s)
        self._config = config
        self._policy = PredictivePolicy(config, self.traffic)
        self._decisions: deque[Decision] = deque(maxlen=_NUM_DECISIONS)
        self._last: dict[str, Wish] = {}
        self._by_hand: dict[str, Bounds] = {}
        self._set_by_hand: set[str] = set()
        self._plant: Plant

    @contextlib.asynccontextmanager
    async def running(self, plant: Plant) -> AsyncGenerator[None]:
        """Scales while entered."""
        self._plant = plant
        if not self._is_needed:
            yield
            return
        self.decide()
        async with _meanwhile(self._decide_regularly()):
            yield

    async def _decide_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._config.interval_s)
            self.decide()

    def decide(self) -> None:
        """Asks the policy now. Call it, too, when traffic says that it is urgent."""
        self.traffic.is_urgent = False
        try:
            loads = self._loads()
            wishes = self._policy.decide(loads, time.monotonic_ns())
        except Exception:
            _log.exception("scaling_failed")  # the replicas stay as they are
            return
        alone = {load.program for load in loads if load.bounds.is_fixed} - self._set_by_hand
        for wish in wishes:
            if wish.program not in alone:
                self._carry_out(wish)

    def _carry_out(self, wish: Wish) -> None:
        self._last[wish.program] = wish
        self._decisions.append(Decision(time.time(), wish))
        _log.info("scaled", program=wish.program, warm=wish.num_warm, parked=wish.num_parked, reason=wish.reason)
        self._plant.want(wish)

    # What people see and say

    def report(self) -> dict[str, Any]:
        """Returns each program's replicas, what is wished for it and why, and the last decisions, the newest last."""
        return {
            "programs": {load.program: self._report(load) for load in self._loads()},
            "decisions": [decision.as_report() for decision in self._decisions],
        }

    def _report(self, load: ProgramLoad) -> dict[str, Any]:
        counts, wish = load.counts, self._last.get(load.program)
        return {
            "num_warm": counts.warm,
            "num_warming": counts.warming,
            "num_parked": counts.parked,
            "num_starting": counts.starting,
            "num_warm_wanted": counts.warm if wish is None else wish.num_warm,
            "num_parked_wanted": counts.parked if wish is None else wish.num_parked,
            "min_warm": load.bounds.min_warm,
            "max_replicas": load.bounds.max_replicas,
            "reason": "" if wish is None else wish.reason,
            "is_by_hand": self._is_by_hand(load.program),
            "from_parked_s": load.lead.from_parked_s,
            "from_cold_s": load.lead.from_cold_s,
        }

    def scale(self, program: str, num_warm: int | None, num_parked: int | None) -> None:
        """Sets numbers by hand, or leaves them to the policy again.

        Raises:
            UnknownModelError: If there is no such program.
            InvalidInputError: If the program's bounds do not allow it.
        """
        loads = {load.program: load for load in self._plant.loads()}
        if program not in loads:
            raise UnknownModelError(f"there is no program {program!r}; there are {sorted(loads)}")
        bounds = loads[program].bounds
        if bounds.is_fixed:
            self._fix(program, bounds, num_warm, num_parked)
            return
        if num_warm is not None and not bounds.min_warm <= num_warm <= bounds.max_replicas:
            raise InvalidInputError(
                f"program {program!r}: {num_warm} warm replicas, expected {bounds.min_warm} to {bounds.max_replicas}, its bounds"
            )
        if (num_warm or 0) + (num_parked or 0) > bounds.max_replicas:
            raise InvalidInputError(
                f"program {program!r}: {num_warm or 0} warm and {num_parked or 0} parked replicas are more than the "
                f"{bounds.max_replicas} that it may have"
            )
        self._policy.override(program, num_warm, num_parked)
        self.decide()

    def _fix(self, program: str, bounds: Bounds, num_warm: int | None, num_parked: int | None) -> None:
        """Sets another fixed number; None is the one that the program declares."""
        self._set_by_hand.add(program)
        if num_warm is None and num_parked is None:
            self._by_hand.pop(program, None)
            self._policy.override(program, bounds.min_warm, 0)
        else:
            num_warm, num_parked = bounds.min_warm if num_warm is None else num_warm, num_parked or 0
            self._by_hand[program] = replace(bounds, min_warm=num_warm, max_replicas=num_warm + num_parked)
            self._policy.override(program, num_warm, num_parked)
        self.decide()

    def _is_by_hand(self, program: str) -> bool:
        return program in self._by_hand or (program in self._policy.overrides and program not in self._set_by_hand)

    def _loads(self) -> Sequence[ProgramLoad]:
        """Returns all programs as they are now, within the bounds that they have now."""
        loads = self._plant.loads()
        if not self._by_hand:
            return loads
        return [replace(load, bounds=self._by_hand.get(load.program, load.bounds)) for load in loads]

    # What outlives the server

    @contextlib.asynccontextmanager
    async def remembering(self, notes: Notes, name: str) -> AsyncGenerator[None]:
        """Takes in what an earlier server learned, and writes down what this one does while entered, and at the end.

        Args:
            name: Of the note.
        """
        if not self._is_needed:  # nothing is learned, and what another server has learned should stay
            yield
            return
        await self._recall(notes, name)
        try:
            async with _meanwhile(self._keep_regularly(notes, name)):
                yield
        finally:
            await self._keep(notes, name)

    async def _recall(self, notes: Notes, name: str) -> None:
        try:
            found = await notes.noted(name)
            if found is not None:
                learned = msgspec.json.decode(found, type=_Learned)
                self.traffic.restore(learned.state, time.monotonic_ns(), max(0.0, time.time() - learned.at_s))
        except (DyOrcError, msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
            _log.warning("history_unreadable", error=str(error))  # it is learned again

    async def _keep_regularly(self, notes: Notes, name: str) -> None:
        while True:
            await asyncio.sleep(_KEEP_S)
            await self._keep(notes, name)

    async def _keep(self, notes: Notes, name: str) -> None:
        learned = _Learned(time.time(), self.traffic.to_state(time.monotonic_ns()))
        try:
            await notes.note(name, msgspec.json.encode(learned))
        except DyOrcError as error:
            _log.warning("history_not_kept", error=str(error))


@contextlib.asynccontextmanager
async def _meanwhile(work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Does something while entered, until it is cancelled at the end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
