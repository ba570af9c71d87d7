"""Simulates a plan by discrete events.

Each rank computes its steps in the plan's order. Communication runs on channels, one for each group of ranks, which keep the
plan's order as well; what leaves or enters a machine also needs that machine's port, and is served in the order in which it is
ready. A collective begins when all its ranks have their inputs, its channel is free and its ports are; every reader of its result
waits for it. If nothing overlaps, a rank does one thing at a time. Where the plan limits what machines send to each other, pairs
of machines take the place of ports; where it lends unused bandwidth, how long a communication takes depends on the others.
Where a cluster says that computing and communicating at once slow each other, how long either takes depends on what else its rank
does; a port is free again when the undisturbed communication would have ended.

Memory: a piece is there from when its task begins until its last reader ends; sources and results stay. A view shares the memory
of what it looks at. What libraries need besides is not counted.

Ranks that do the same at the same time are simulated once (`rank_kinds.py`).

Deterministic: everything is in the order of times, and of tasks where these are equal.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from heapq import heappop, heappush
from math import inf

from dyorc.planner.cluster import Cluster, Contention
from dyorc.planner.plan import Plan
from dyorc.planner.program import TensorProgram
from dyorc.planner.simulate.flows import Flows
from dyorc.planner.simulate.simulated_tasks import SimulatedTask, Tasks, tasks_of
from dyorc.planner.simulate.simulation import Simulation


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


def simulate(plan: Plan, program: TensorProgram, cluster: Cluster, *, overlap: bool = True, is_folded: bool = True) -> Simulation:
    """Simulates one step of training.

    Args:
        plan: What is done.
        program: What the plan distributes.
        cluster: Where it runs; rank is index of the device.
        overlap: Whether ranks compute while they communicate.
        is_folded: Whether ranks that do the same at the same time are simulated once, where that is known to make no difference
            (`rank_kinds.py`). False is slower on many ranks, and finds the same.

    Raises:
        PlanError: The plan does not fit the program or the cluster, or reads what no step has made.
    """
    tasks = tasks_of(plan, program, cluster, overlap=overlap, is_folded=is_folded)
    contending = Contending(cluster.contention, tasks.tasks, cluster.num_ranks) if cluster.contention and overlap else None
    run = _Run(tasks, cluster.num_ranks, contending)
    try:
        run.go()
    except _PortContended:
        return simulate(plan, program, cluster, overlap=overlap, is_folded=False)
    return _simulation(plan, tasks, run, is_disturbed=contending is not None)


def _simulation(plan: Plan, tasks: Tasks, run: "_Run", *, is_disturbed: bool) -> Simulation:
    alike = tasks.alike
    busy, communication = [0.0] * len(alike.first), [0.0] * len(alike.first)
    for task, start_s, end_s in zip(tasks.tasks, run.starts, run.ends, strict=True):
        spent = communication if task.is_communication else busy
        for rank in alike.firsts(task.ranks):
            spent[rank] += end_s - start_s if task.flow or is_disturbed else task.duration_s
    histories = [tuple(history) for history in run.memory]
    return Simulation(
        plan=plan,
        total_s=max(run.ends, default=0.0),
        busy_s=tuple(busy[first] for first in alike.first),
        communication_s=tuple(communication[first] for first in alike.first),
        peak_bytes=tuple(run.peaks[first] for first in alike.first),
        memory=tuple(histories[first] for first in alike.first),
        first_alike=alike.first,
        tasks=tasks.tasks,
        times=tuple(zip(run.starts, run.ends, strict=True)),
    )


class _PortContended(Exception):
    """Two tasks ask for a port at the same moment, and only their numbers say which has it: other ranks of a kind may differ."""


class _Kind(IntEnum):
    BEGIN = 0
    END = 1
    FLOWS = 2  # the first flow ends, unless speeds have changed


class _Run:
    """One run: a queue of events, which are ends of tasks, starts of tasks that waited for a port, and changes of speeds."""

    def __init__(self, tasks: Tasks, num_ranks: int, contending: Contending | None) -> None:
        self._tasks = tasks
        self._waiting = [len(task.after) for task in tasks.tasks]
        self._port_free_s = [0.0] * tasks.num_ports
        self._port_asked_s = [-1.0] * tasks.num_ports
        self._readers = [0] * len(tasks.buffers)
        for task in tasks.tasks:
            for buffer in task.reads:
                self._readers[buffer] += 1
        self._queue: list[tuple[float, int, _Kind]] = []
        self._flows = Flows(tasks.capacities)
        self._contending = contending
        self._has_ended = bytearray(len(tasks.tasks))
        self._lines: dict[int, deque[int]] = {}  # port -> the flows that need it, the one that has it first
        self._bytes = [0] * num_ranks
        self.starts = [0.0] * len(tasks.tasks)
        self.ends = [0.0] * len(tasks.tasks)
        self.peaks = [0] * num_ranks
        self.memory: list[list[tuple[float, int]]] = [[] for _ in range(num_ranks)]

    def go(self) -> None:
        for buffer in self._tasks.sources:
            self._change(buffer, 1, 0.0)
        for index, num_waiting in enumerate(self._waiting):
            if not num_waiting:
                self._ready(index, 0.0)
        followers, waiting = self._tasks.followers, self._waiting
        while self._queue:
            now_s, index, kind = heappop(self._queue)
            if kind is _Kind.BEGIN:
                self._begin(index, now_s)
                continue
            if kind is _Kind.FLOWS:
                self._end_flows(now_s)
                continue
            if self._has_ended[index] or now_s != self.ends[index]:
                continue  # its end has changed since
            self._has_ended[index] = True
            for other, end_s in self._contending.end(index, now_s) if self._contending else ():
                self._end(other, end_s)
            self._release(index, now_s)
            if self._tasks.tasks[index].flow:
                self._leave_lines(index, now_s)
            for follower in followers[index]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    self._ready(follower, now_s)

    def _ready(self, index: int, now_s: float) -> None:
        ports = self._tasks.tasks[index].ports
        if self._tasks.tasks[index].flow:
            for port in ports:
                self._lines.setdefault(port, deque()).append(index)
            self._begin_flow(index, now_s)
            return
        start_s = now_s
        if ports:
            if self._tasks.alike.is_folded:
                self._ask_for(ports, now_s)
            start_s = max(now_s, *(self._port_free_s[port] for port in ports))
            for port in ports:
                self._port_free_s[port] = start_s + self._tasks.tasks[index].duration_s
        if start_s > now_s:
            heappush(self._queue, (start_s, index, _Kind.BEGIN))
        else:
            self._begin(index, now_s)

    def _ask_for(self, ports: Sequence[int], now_s: float) -> None:
        for port in ports:
            if self._port_asked_s[port] == now_s:
                raise _PortContended
            self._port_asked_s[port] = now_s

    def _begin(self, index: int, now_s: float) -> None:
        task = self._tasks.tasks[index]
        for buffer in task.makes:
            self._change(buffer, 1, now_s)
        self.starts[index] = now_s
        if task.flow:
            self._flows.begin(index, task.flow, max(task.duration_s - task.flow.latency_s, 0.0), now_s)
            heappush(self._queue, (self._flows.due_s, -1, _Kind.FLOWS))
        elif self._contending and task.duration_s:
            for other, end_s in self._contending.begin(index, now_s):
                self._end(other, end_s)
        else:
            self._end(index, now_s + task.duration_s)

    def _end(self, index: int, at_s: float) -> None:
        self.ends[index] = at_s
        heappush(self._queue, (at_s, index, _Kind.END))

    def _begin_flow(self, index: int, now_s: float) -> None:
        """A flow begins when it is the first in all its lines."""
        if all(self._lines[port][0] == index for port in self._tasks.tasks[index].ports):
            self._begin(index, now_s)

    def _end_flows(self, now_s: float) -> None:
        if now_s != self._flows.due_s:
            return  # speeds have changed since
        for index in self._flows.remove_ended(now_s):
            flow = self._tasks.tasks[index].flow
            assert flow is not None
            self._end(index, now_s + flow.latency_s)
        if self._flows.due_s < inf:
            heappush(self._queue, (self._flows.due_s, -1, _Kind.FLOWS))

    def _leave_lines(self, index: int, now_s: float) -> None:
        lines = [self._lines[port] for port in self._tasks.tasks[index].ports]
        for line in lines:
            line.popleft()
        for first in dict.fromkeys(line[0] for line in lines if line):
            self._begin_flow(first, now_s)

    def _release(self, index: int, now_s: float) -> None:
        task, kept, readers = self._tasks.tasks[index], self._tasks.kept, self._readers
        for buffer in task.reads:
            readers[buffer] -= 1
            if not readers[buffer] and buffer not in kept:
                self._change(buffer, -1, now_s)
        for buffer in task.makes:
            if not readers[buffer] and buffer not in kept:
                self._change(buffer, -1, now_s)

    def _change(self, buffer: int, sign: int, now_s: float) -> None:
        rank, num_bytes = self._tasks.buffers[buffer]
        self._bytes[rank] += sign * num_bytes
        held = self._bytes[rank]
        if held > self.peaks[rank]:
            self.peaks[rank] = held
        history = self.memory[rank]
        if history and history[-1][0] == now_s:
            history[-1] = (now_s, held)
        else:
            history.append((now_s, held))
