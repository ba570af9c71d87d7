"""What is under way where a rank's computation and communication slow each other: when each ends changes with what else runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dyorc.planner.cluster import Contention
from dyorc.planner.simulate.simulated_tasks import SimulatedTask


@dataclass(slots=True)
class _Going:
    """A task under way.

    Attributes:
        left_s: What it would still take at full speed, when it was last looked at.
        since_s: When that was.
        times: How many times longer it takes now.
    """

    left_s: float
    since_s: float
    times: float = 1.0


class Contending:
    """Tasks under way, each with what is left of it. Both methods return the tasks whose ends change, with their new ends."""

    def __init__(self, contention: Contention, tasks: Sequence[SimulatedTask], num_ranks: int) -> None:
        self._contention = contention
        self._tasks = tasks
        self._going: dict[int, _Going] = {}
        self._computing: list[set[int]] = [set() for _ in range(num_ranks)]
        self._communicating: list[set[int]] = [set() for _ in range(num_ranks)]

    def begin(self, index: int, now_s: float) -> list[tuple[int, float]]:
        """Adds a task."""
        task = self._tasks[index]
        going = self._going[index] = _Going(task.duration_s, now_s)
        for rank in task.ranks:
            self._of(task)[rank].add(index)
        going.times = self._times(index)
        return [(index, now_s + going.left_s * going.times), *self._changed(task, now_s)]

    def end(self, index: int, now_s: float) -> list[tuple[int, float]]:
        """Removes a task, if it was added."""
        if self._going.pop(index, None) is None:
            return []
        task = self._tasks[index]
        for rank in task.ranks:
            self._of(task)[rank].remove(index)
        return list(self._changed(task, now_s))

    def _of(self, task: SimulatedTask) -> list[set[int]]:
        return self._communicating if task.is_communication else self._computing

    def _times(self, index: int) -> float:
        task = self._tasks[index]
        others = self._computing if task.is_communication else self._communicating
        if not any(others[rank] for rank in task.ranks):
            return 1.0
        return self._contention.times(task.duration_s) if task.is_communication else self._contention.computing

    def _changed(self, task: SimulatedTask, now_s: float) -> Iterator[tuple[int, float]]:
        others = self._computing if task.is_communication else self._communicating
        for index in dict.fromkeys(other for rank in task.ranks for other in sorted(others[rank])):
            going, times = self._going[index], self._times(index)
            if times != going.times:
                going.left_s -= (now_s - going.since_s) / going.times
                going.since_s, going.times = now_s, times
                yield index, now_s + max(going.left_s, 0.0) * times
