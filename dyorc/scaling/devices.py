"""Who is on which device: warm replicas that share one need no more than all of it. Parked ones need nothing. Pure."""

from collections import Counter, defaultdict

from dyorc.scaling.model import ProgramLoad

_SLACK = 1e-9


class Devices:
    """Devices, while replicas are chosen to be warm on them.

    A replica's process is on the device that it was started on. Processes that do not exist yet may be on any.
    """

    def __init__(self) -> None:
        self._used = defaultdict[str, float](float)
        self._taken = Counter[tuple[str, str]]()

    def take(self, load: ProgramLoad) -> bool:
        """Takes the room for one more replica of a program, on a device on which it is warm already, if possible.

        Returns:
            Whether there was room.
        """
        num_here = load.warm_on.total() + load.parked_on.total()
        if not num_here or sum(self._taken[load.program, device] for device in load.devices) >= num_here:
            return True  # no process has a device of its own, or this one does not exist yet
        for where in (load.warm_on, load.parked_on):
            for device in sorted(where, key=self._used.__getitem__):
                if self._is_free(load, device, where):
                    self._taken[load.program, device] += 1
                    self._used[device] += load.cost.num_gpus
                    return True
        return False

    def _is_free(self, load: ProgramLoad, device: str, where: Counter[str]) -> bool:
        num_seats = where[device] if where is load.warm_on else load.warm_on[device] + where[device]
        return self._taken[load.program, device] < num_seats and has_room(self._used[device], load.cost.num_gpus)


def has_room(used: float, num_gpus: float) -> bool:
    """Returns whether a device that is used by so much has room for another replica. One that takes several has them alone."""
    return num_gpus > 1 or used + num_gpus <= 1 + _SLACK
