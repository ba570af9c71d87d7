"""Strikes a shape again and again, and says what came of it."""

import contextlib
import gc
import random
import sys
import time
import traceback
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field

from tests.deadlines import wait_until
from tests.leaks import Footprint
from tests.storm.clients import REQUEST_S, Clients, Ledger
from tests.storm.contract import Fault, Shape
from tests.storm.judgement import LINGER_S, Settlement, Strike, footprints, grown, left_in_memory, settle
from tests.storm.turns import Turns

_MAX_TOGETHER_S = 0.3
"""Between the beginnings of faults that happen together."""
_OUTAGE_S = 90.0
"""No client waits longer for service than this beyond its bound."""
_CALM_FACTOR = 5.0
"""How many times longer than just before a fault clients may be waiting after it, beside its bound."""
_LEAKS_S = 10.0
_NUM_SHOWN = 15
_REASON_LENGTH = 2000


@dataclass
class ShapeResult:
    """All that a storm over a shape has shown.

    Attributes:
        broken: What was wrong with its processes, for people.
        broken_off: Why it could not go on to its end; empty if it could.
    """

    shape: str
    strikes: list[Strike]
    settlement: Settlement
    leaks: list[str]
    wrong: list[str]
    num_requests: int
    num_answers: int
    seconds: float
    broken: list[str] = field(default_factory=list[str])
    broken_off: str = ""

    @property
    def violations(self) -> list[str]:
        """Everything that must not have happened, for people; without what depends on how busy the machine is (`late`)."""
        books = self.settlement
        unexplained = [text for strike in self.strikes for text in strike.unexplained]
        broken_off = [f"broken off {self.broken_off}"] if self.broken_off else []
        return [*self.wrong, *books.wrong, *books.lost, *books.doubled, *unexplained, *self.leaks, *self.broken, *broken_off]

    @property
    def late(self) -> list[str]:
        """Faults after which clients were answered again later than is promised."""
        return [
            f"{' and '.join(strike.names)}: answered again after {strike.back_s} s, expected at most {strike.bound_s:.1f} s"
            for strike in self.strikes
            if strike.is_late
        ]


class UnknownFaultError(ValueError):
    """A shape suffers none of the faults that were asked for."""


class BrokenOffError(Exception):
    """A storm cannot go on. The message names the faults of the moment, and says why."""


class Storm:
    """Strikes a shape that runs, under load.

    Args:
        chance: Decides what happens, and when.
        names: What may happen. Empty: whatever the shape can suffer.
    """

    def __init__(
        self, shape: Shape, clients: Clients, ledger: Ledger, chance: random.Random, names: Collection[str] = ()
    ) -> None:
        self._shape = shape
        self._clients = clients
        self._ledger = ledger
        self._chance = chance
        self._turns = Turns(chance)
        self._names = names
        self._num_judged = 0
        self.strikes: list[Strike] = []

    @property
    def is_over(self) -> bool:
        """Whether going on makes no sense: there was a wrong answer, or there is no service."""
        return bool(self._ledger.wrong) or any(strike.back_s is None for strike in self.strikes)

    @property
    def kinds(self) -> list[str]:
        """The names of all that the shape can suffer now."""
        return sorted(kind for kinds in self._shape.faults().values() for kind in kinds)

    def strike(self) -> None:
        """Lets one fault happen, or some together, and waits until every client is answered again. Then nothing is waited for.

        Raises:
            BrokenOffError: If a fault could not be made or ended.
            UnknownFaultError: If none of the faults that were asked for is possible.
        """
        calm_s = self._clients.longest_unanswered_s()
        faults = self._draw()
        try:
            self._strike(faults, calm_s)
        except Exception as error:
            names = " and ".join(fault.name for fault in faults)
            raise BrokenOffError(f"at fault {len(self.strikes) + 1}, {names}: {reason_of(error)}") from error

    def _strike(self, faults: Sequence[Fault], calm_s: float) -> None:
        chance, shape = self._chance, self._shape
        num_lines, began_s = shape.num_log_lines, time.monotonic()
        bound_s = sum(fault.bound_s for fault in faults) + _CALM_FACTOR * calm_s
        strike = Strike([fault.name for fault in faults], began_s, bound_s)
        is_unnoticed = all(fault.is_unnoticed for fault in faults)
        for at, fault in enumerate(faults):
            if at:
                time.sleep(chance.uniform(0, _MAX_TOGETHER_S))
            applied_s = time.monotonic()
            fault.apply()
            if fault.hinders_starts:
                shape.hindered_until_s = time.monotonic()
            if fault.is_unnoticed and not is_unnoticed:  # clients were answered meanwhile, and are asked only after the other
                strike.bound_s += time.monotonic() - applied_s
        # What ends gracefully answers until it has ended.
        struck_s = began_s if is_unnoticed else time.monotonic()
        for fault in faults:
            fault.end()
        back_at_s = self._clients.wait_for_all(struck_s, strike.bound_s + _OUTAGE_S)
        if any(fault.cuts for fault in faults):
            time.sleep(LINGER_S)
        strike.back_s = None if back_at_s is None else round(back_at_s - began_s, 2)
        outcomes = self._ledger.outcomes[self._num_judged :]
        self._num_judged += len(outcomes)
        strike.judge(outcomes, faults)
        strike.num_lines = shape.num_log_lines - num_lines
        self.strikes.append(strike)
        self._tell(strike)

    def _draw(self) -> list[Fault]:
        """Returns what happens next; what lasts longest is first, so that the others happen meanwhile."""
        possible = {
            part: {kind: make for kind, make in kinds.items() if not self._names or kind in self._names}
            for part, kinds in self._shape.faults().items()
        }
        makers = {kind: make for kinds in possible.values() for kind, make in kinds.items()}
        if not makers:
            raise UnknownFaultError(f"{self._shape.name} suffers none of {sorted(self._names)}; it suffers {self.kinds}")
        faults = [makers[kind]() for kind in self._turns.draw(possible)]
        return sorted(faults, key=lambda fault: fault.bound_s, reverse=True)

    def _tell(self, strike: Strike) -> None:
        failed = ", ".join(f"{number} {code}" for code, number in strike.failed.items()) or "none"
        name = f"{self._shape.name} {len(self.strikes)}: {' and '.join(strike.names)}"
        tell(
            f"{name}: answered again after {strike.back_s} s, bound {strike.bound_s:.0f}, failed: "
            f"{failed}, unexplained: {len(strike.unexplained)}, {self._num_judged} requests so far"
        )
        for text in strike.unexplained[:3]:
            tell(f"   {text}")


def storm(
    shape: Shape, seed: int, is_time_over: Callable[[int], bool], num_clients: int, names: Collection[str] = ()
) -> ShapeResult:
    """Runs a whole storm over a shape.

    Args:
        is_time_over: Asked before each strike with the number of strikes so far.
        num_clients: At each entrance.
        names: What may happen. Empty: whatever the shape can suffer.
    """
    chance, ledger, started_s = random.Random(f"{shape.name} {seed}"), Ledger(), time.monotonic()
    leaks, broken, reasons, strikes, books = list[str](), list[str](), list[str](), list[Strike](), Settlement()
    with _no_leaks(broken):
        try:
            with _noted(reasons):
                shape.start()
                tell(f"{shape.name}: started after {time.monotonic() - started_s:.1f} s")
                with Clients(list(shape.entrances), shape.folder, ledger, num_clients, seed) as clients:
                    current = Storm(shape, clients, ledger, chance, names)
                    strikes = current.strikes
                    if clients.wait_for_all(time.monotonic(), _OUTAGE_S) is None:
                        broken.append("not all clients were answered before anything happened")
                    before = footprints(shape)
                    while not (broken or current.is_over or is_time_over(len(strikes))):
                        current.strike()
                    with clients.paused(REQUEST_S + LINGER_S) as waiting:
                        broken += [f"client {client} still waits for an answer" for client in waiting]
                        leaks += left_in_memory(shape)
                        leaks += grown(before, footprints(shape))
                books = settle(shape, ledger)
        finally:
            with _noted(reasons):
                shape.stop()
    leaks += shape.findings.leaks
    broken += shape.findings.faults
    num_answers = sum(not outcome.code for outcome in ledger.outcomes)
    seconds = round(time.monotonic() - started_s, 1)
    result = ShapeResult(
        shape.name,
        strikes,
        books,
        leaks,
        ledger.wrong,
        len(ledger.outcomes),
        num_answers,
        seconds,
        broken,
        "; then ".join(reasons),
    )
    if violations := [*result.violations, *result.late]:
        tell("\n".join([*violations[:_NUM_SHOWN], shape.log_tail]))
    return result


@contextlib.contextmanager
def _noted(reasons: list[str]) -> Generator[None]:
    """Adds what breaks off what is inside to `reasons`, and goes on after it. Only a wrong option ends all."""
    try:
        yield
    except UnknownFaultError:
        raise
    except Exception as error:
        tell("".join(traceback.format_exception(error)))
        reasons.append(reason_of(error))


@contextlib.contextmanager
def _no_leaks(broken: list[str]) -> Generator[None]:
    """Adds to `broken` what this process keeps of descriptors, threads, children and temporary folders. Shared memory, which
    others of this machine use meanwhile, is for shapes and servers to look at."""
    before = Footprint.now()
    yield
    gc.collect()
    left: list[str] = []

    def are_gone() -> bool:
        left[:] = [line for line in Footprint.now().since(before) if not line.startswith("shared memory")]
        return not left

    with contextlib.suppress(AssertionError):
        wait_until(are_gone, "what was started has gone", _LEAKS_S)
    broken += [f"left behind: {line}" for line in left]


def reason_of(error: BaseException) -> str:
    """Returns what broke a storm off, for people: one line, as long as a page can show."""
    match error:
        case BrokenOffError():
            text = str(error)
        case BaseExceptionGroup():
            text = "; ".join(reason_of(each) for each in error.exceptions)
        case _:
            text = f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:_REASON_LENGTH]


def tell(text: str) -> None:
    """Prints a line of progress."""
    print(text, file=sys.stderr, flush=True)
