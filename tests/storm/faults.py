"""Faults that several shapes can suffer. Each function returns one, drawn with its details."""

import os
import random
import signal
import time
from collections.abc import Callable, Collection, Sequence

import dyorc
from dyorc.client import Retries
from dyorc.errors import DyOrcError
from tests.deadlines import wait_until
from tests.storm.contract import CONNECTION, Entrance, Fault
from tests.storm.members import FillableFolder, Member
from tests.storm.wall_clock import WallClock
from tests.workflows import stormy

BUSY_S = 5.0
"""What a busy machine of two cores may add to any bound."""
BUSY_FACTOR = 5.0
"""How much longer an end and a start may take together, beside clients, than a start took without them."""
_FULL_S = 1.0
_JUMPS_S = (3600, 86_400, 7, 2)
_PATIENT = Retries(max_attempts=8)
_SETTINGS = (
    {"DYORC_ENGINE__SPECULATION__ENABLED": "false"},
    {"DYORC_TRANSPORT__INLINE_LIMIT_BYTES": "1024"},
    {"DYORC_GATEWAY__DRAIN_TIMEOUT_S": "20"},
    {"DYORC_JOBS__MAX_RUNNING": "4"},
)
"""Each is one change of the configuration."""


def start_bound_s(member: Member) -> float:
    """Returns how long a start may take, beside the load."""
    return BUSY_FACTOR * member.start_s + BUSY_S


def kill(member: Member, cuts: Collection[int], codes: Collection[str], bound_s: float | None = None) -> Fault:
    """Ends a process by SIGKILL, and starts another in its place."""

    def apply() -> None:
        member.end(signal.SIGKILL)
        member.start(is_waited_for=False)

    bound_s = start_bound_s(member) if bound_s is None else bound_s
    return Fault(name=f"kill {member.kind}", apply=apply, end=member.wait, bound_s=bound_s, codes=codes, cuts=cuts)


def restart(
    member: Member, cuts: Collection[int], codes: Collection[str], chance: random.Random, bound_s: float | None = None
) -> Fault:
    """Ends a process by SIGTERM or SIGINT, and starts another in its place."""
    number = chance.choice((signal.SIGTERM, signal.SIGINT))

    def apply() -> None:
        member.end(number)
        member.start(is_waited_for=False)

    bound_s = start_bound_s(member) if bound_s is None else bound_s
    return Fault(
        name=f"restart {member.kind}", apply=apply, end=member.wait, bound_s=bound_s, codes=codes, cuts=cuts, is_graceful=True
    )


def reconfigure(member: Member, cuts: Collection[int], codes: Collection[str], chance: random.Random) -> Fault:
    """Ends a process by SIGTERM, and starts it with another setting."""
    setting = chance.choice(_SETTINGS)

    def apply() -> None:
        member.end(signal.SIGTERM)
        member.start(setting, is_waited_for=False)

    return Fault(
        name="change configuration",
        apply=apply,
        end=member.wait,
        bound_s=start_bound_s(member),
        codes=codes,
        cuts=cuts,
        is_graceful=True,
    )


def stop_for(
    name: str,
    pids: Sequence[int],
    for_s: float,
    codes: Collection[str] = (),
    *,
    cuts: Collection[int] = (),
    bound_s: float = BUSY_S,
    end: Callable[[], object] = lambda: None,
    hinders_starts: bool = False,
) -> Fault:
    """Stops processes by SIGSTOP for a while, and lets them go on."""

    def apply() -> None:
        send(pids, signal.SIGSTOP)
        time.sleep(for_s)
        send(pids, signal.SIGCONT)

    bound_s += for_s
    return Fault(
        name=f"stop {name}", apply=apply, end=end, bound_s=bound_s, codes=codes, cuts=cuts, hinders_starts=hinders_starts
    )


def send(pids: Sequence[int], number: signal.Signals) -> None:
    """Sends a signal to each that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def full(folder: FillableFolder, what_for: str, codes: Collection[str]) -> Fault:
    """Fills a folder for a while."""

    def apply() -> None:
        folder.fill()
        time.sleep(_FULL_S)
        folder.empty()

    return Fault(name=f"full {what_for}", apply=apply, bound_s=_FULL_S + BUSY_S, codes=codes, hinders_starts=True)


def clock_jump(clock: WallClock, chance: random.Random) -> Fault:
    """Puts the time of day forward or back: by a day at most, and by seconds as often as by hours."""
    by_s = chance.choice(_JUMPS_S) * chance.choice((-1, 1))
    return Fault(name="clock " + ("forward" if by_s > 0 else "back"), apply=lambda: clock.move(by_s), bound_s=BUSY_S)


def deploy(entrance: Entrance, targets: Sequence[str], chance: random.Random) -> Fault:
    """Loads a workflow again, as the next version, and takes the version before out of service."""
    workflow = chance.choice([workflow for workflow in stormy.ALL if workflow is not stormy.crash])
    (target,) = (text for text in targets if text.endswith(f":{workflow.name}"))

    def apply() -> None:
        with entrance.entered(), dyorc.Client(entrance.url, timeout_s=120.0, retries=_PATIENT) as client:
            if chance.random() < 0.3:
                client.deploy(target, fresh=True, share=0.5)
                client.rollback(workflow.name)
            else:
                client.deploy(target, fresh=True)

    return Fault(name="deploy", apply=apply, bound_s=BUSY_S, is_unnoticed=True)


def scale(entrance: Entrance, program: str, chance: random.Random) -> Fault:
    """Changes how many replicas of a program are warm, under the name that it has since the last deploy."""
    num_warm = chance.choice((1, 2))

    def apply() -> None:
        with entrance.entered(), dyorc.Client(entrance.url, timeout_s=120.0, retries=_PATIENT) as client:
            names = [name for name in client.scaling()["programs"] if name.partition("@")[0] == program]
            client.scale(names[-1], num_warm=num_warm)

    return Fault(name="scale", apply=apply, bound_s=BUSY_S, is_unnoticed=True)


def crash(
    entrance: Entrance, name: str, cuts: Collection[int], bound_s: float, pids: Callable[[], list[int]], chance: random.Random
) -> Fault:
    """Sends an input that crashes its program. `pids`: the processes that may be hit, as seen before and after."""
    before, number = pids(), -chance.randrange(1, 2**31)  # one that has crashed twice is refused
    fault = Fault(name=name, apply=lambda: None, bound_s=bound_s, cuts=cuts, pids=[])

    def apply() -> None:
        with entrance.entered(), dyorc.Client(entrance.url, timeout_s=60.0, retries=Retries(max_attempts=1)) as client:
            try:
                client.infer("crash", x=number)
            except DyOrcError:
                pass
            else:
                raise AssertionError("an input that crashes its program was answered")
        wait_until(lambda: set(before) - set(pids()), "a process has ended")
        assert fault.pids is not None
        fault.pids += [pid for pid in before if pid not in pids()]

    fault.apply = apply
    return fault


LOST_WITH_LEADER = ("effect_lost",)
"""What may come if the process that ran programs has gone."""
AWAY = (CONNECTION, "effect_lost", "not_ready", "store", "overloaded", "capacity")
"""What may come at an entrance that has gone, or starts."""
