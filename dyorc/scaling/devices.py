"""Where replicas are: which devices have room for warm replicas, and which parked replica is warmed. Parked ones need no room."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dyorc.scaling.model import ProgramLoad

_SLACK = 1e-9


class Devices:
    """Devices, while replicas are chosen to be warm on them.

    A replica's process is on the device that it was started on. Processes that do not exist yet may be on any.
    """

    def __init__(self) -> None:
        self._used = defaultdict[str, float](float)
        self._taken = Counter[tuple[str, str]]()
        self._on = defaultdict[str, list[ProgramLoad]](list)

    def take(self, load: ProgramLoad) -> bool:
        """Takes the room for one more replica of a program, on a device on which it is warm already, if possible.

        Without one, another program's replica that was granted room before moves to another device where its program has a
        process.

        Returns:
            Whether there was room.
        """
        num_here = load.warm_on.total() + load.parked_on.total()
        if not num_here or sum(self._taken[load.program, device] for device in load.devices) >= num_here:
            return True  # no process has its own device, or this one does not exist yet
        device = self._find(load) or self._vacate(load)
        if device:
            self._seat(load, device)
        return bool(device)

    def most_on(self, load: ProgramLoad, loads: Sequence[ProgramLoad]) -> Mapping[str, int]:
        """Returns how many replicas of a program may stay warm on the devices where it has to make room for others.

        Args:
            loads: All programs.
        """
        return {
            device: taken
            for device, number in load.warm_on.items()
            if number > (taken := self._taken[load.program, device]) and not self._is_enough(device, loads)
        }

    def _is_enough(self, device: str, loads: Iterable[ProgramLoad]) -> bool:
        """Returns whether a device has room for all replicas that are warm on it now, or will be."""
        parts = (max(load.warm_on[device], self._taken[load.program, device]) * load.cost.num_gpus for load in loads)
        return sum(parts) <= 1 + _SLACK

    def _find(self, load: ProgramLoad, but: str = "") -> str:
        """Returns a device with room and an unused process of a program, one that holds it already if possible, or nothing."""
        for seats in (load.warm_on, load.warm_on + load.parked_on):
            for device in sorted(seats, key=self._used.__getitem__):
                is_unused = self._taken[load.program, device] < seats[device]
                if is_unused and device != but and has_room(self._used[device], load.cost.num_gpus):
                    return device
        return ""

    def _vacate(self, load: ProgramLoad) -> str:
        """Moves a replica away from a device that a program needs, and returns that device; nothing if none can move."""
        seats = load.warm_on + load.parked_on
        for device in seats:
            if self._taken[load.program, device] == seats[device]:
                continue
            for other in self._on[device]:
                is_enough = has_room(self._used[device] - other.cost.num_gpus, load.cost.num_gpus)
                if is_enough and other.program != load.program and (free := self._find(other, but=device)):
                    self._seat(other, device, -1)
                    self._seat(other, free)
                    return device
        return ""

    def _seat(self, load: ProgramLoad, device: str, number: int = 1) -> None:
        self._taken[load.program, device] += number
        self._used[device] += number * load.cost.num_gpus
        if number > 0:
            self._on[device].append(load)
        else:
            self._on[device].remove(load)


def has_room(used: float, num_gpus: float) -> bool:
    """Returns whether a device with this usage has room for another replica. One that takes several devices has them alone."""
    return num_gpus > 1 or used + num_gpus <= 1 + _SLACK


_COPY_BYTES_PER_S = 1e9
"""At this rate tensors come from another node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A parked replica, where it is, and what lies there.

    Attributes:
        has_weights: Whether the program's weights have been read on the node, so that they are in its page cache.
        upstream_bytes: Bytes of tensors on the node that calls waiting for the program will read.
    """

    replica_id: str
    node: str
    has_weights: bool = False
    upstream_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """A replica, and why this one."""

    replica_id: str
    reason: str


def choose_to_warm(seats: Sequence[Seat], load_s: float) -> Choice:
    """Returns the parked replica that serves soonest; of equal ones the first.

    Which replica is parked is up to the engine, which knows what each runs, and to `Devices` where programs share a device. Only
    replicas whose device has room come here.

    Args:
        seats: At least one.
        load_s: How long it takes to load the program; as long as that, at most, for weights that have to be read from a disk.
    """
    most_bytes = max(seat.upstream_bytes for seat in seats)

    def cost_s(seat: Seat) -> float:
        return (0.0 if seat.has_weights else load_s) + (most_bytes - seat.upstream_bytes) / _COPY_BYTES_PER_S

    chosen = min(seats, key=cost_s)
    return Choice(chosen.replica_id, _why(chosen, seats))


def _why(chosen: Seat, seats: Sequence[Seat]) -> str:
    reasons: list[str] = []
    if chosen.has_weights and any(not seat.has_weights for seat in seats):
        reasons.append("has read the weights before")
    if any(seat.upstream_bytes < chosen.upstream_bytes for seat in seats):
        reasons.append(f"holds {chosen.upstream_bytes} bytes of the tensors that wait")
    return f"node {chosen.node!r} {' and '.join(reasons)}" if reasons else f"node {chosen.node!r} is as good as any"
