"""Schedules: when the blocks of a repetition start, and how that continues over many repetitions."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from dyorc.planner.plan import SearchEnd
from dyorc.planner.planners.modulo.modulo_blocks import ModuloBlock, ModuloProblem


class Entry(NamedTuple):
    """One block of one repetition."""

    start: int
    part: int
    block: ModuloBlock

    @property
    def stop(self) -> int:
        """When it ends."""
        return self.start + self.block.span


@dataclass(frozen=True)
class Repetend:
    """A schedule of one repetition that fits together with all others, each a period later.

    Attributes:
        problem: What is scheduled.
        period: When the next repetition starts after each.
        starts: When each block of the first repetition starts.
    """

    problem: ModuloProblem
    period: int
    starts: Mapping[str, int]

    @property
    def bubbles(self) -> int:
        """How long the busiest resource idles in each period."""
        return self.period - self.problem.load

    @cached_property
    def latency(self) -> int:
        """How long one repetition takes from beginning to end."""
        begin = min(self.starts.values())
        return max(self.starts[block.name] + block.span for block in self.problem.blocks) - begin

    @cached_property
    def depth(self) -> int:
        """From how many repetitions the blocks of one period are: Tessel's N_R."""
        return 1 + max(start // self.period for start in self.starts.values())

    @cached_property
    def peaks(self) -> Mapping[str, int]:
        """The most memory in use at a time once the repetitions follow each other, by resource."""
        peaks: dict[str, int] = {}
        for resource in self.problem.resources:
            mine = [(*divmod(self.starts[block.name], self.period), block.memory) for block in self.problem.on(resource)]
            peaks[resource] = max(sum(memory * ((s <= now) - k) for k, s, memory in mine) for _, now, _ in mine)
        return peaks

    def unroll(self, num_parts: int) -> "UnrolledTimeline":
        """Schedules a number of repetitions, each as early as possible."""
        at = {block.name: number for number, block in enumerate(self.problem.blocks)}
        times = [
            (self.starts[block.name] + part * self.period, part, at[block.name], block)
            for part in range(num_parts)
            for block in self.problem.blocks
        ]
        return in_order(self.problem, [(part, block) for _, part, _, block in sorted(times, key=lambda time: time[:3])])


@dataclass(frozen=True)
class UnrolledTimeline:
    """When each block of each repetition starts.

    Attributes:
        problem: What is scheduled.
        entries: In an order in which they can be carried out one after the other.
    """

    problem: ModuloProblem
    entries: tuple[Entry, ...]

    @cached_property
    def makespan(self) -> int:
        """When the last block has ended."""
        return max(entry.stop for entry in self.entries)

    @cached_property
    def peaks(self) -> Mapping[str, int]:
        """The most memory in use at a time, by resource."""
        peaks: dict[str, int] = {}
        for resource in self.problem.resources:
            held = 0
            for entry in self._on(resource):
                held += entry.block.memory
                peaks[resource] = max(peaks.get(resource, 0), held)
        return peaks

    def faults(self) -> list[str]:
        """Returns what is wrong with it; nothing if it can be carried out as it stands."""
        faults = [*self._overlaps(), *self._disorder()]
        capacities = self.problem.capacities
        for resource, peak in self.peaks.items():
            if peak > capacities.get(resource, peak):
                faults.append(f"{resource} needs {peak} units of memory and has {capacities[resource]}")
        return faults

    def _on(self, resource: str) -> list[Entry]:
        return sorted((entry for entry in self.entries if resource in entry.block.resources), key=lambda entry: entry[:2])

    def _overlaps(self) -> list[str]:
        overlaps: list[str] = []
        for resource in self.problem.resources:
            mine = self._on(resource)
            for entry, other in itertools.pairwise(mine):
                if entry.stop > other.start:
                    overlaps.append(
                        f"{entry.block.name} #{entry.part} and {other.block.name} #{other.part} overlap on {resource}"
                    )
        return overlaps

    def _disorder(self) -> list[str]:
        stops = {(entry.block.name, entry.part): entry.stop for entry in self.entries}
        return [
            f"{entry.block.name} #{entry.part} starts at {entry.start}, before {name} has ended"
            for entry in self.entries
            for name in entry.block.after
            if stops[name, entry.part] > entry.start
        ] + [
            f"{entry.block.name} #{entry.part} starts at {entry.start}, before {name} #{entry.part - 1} has ended"
            for entry in self.entries
            for name, later in self.problem.carried
            if later == entry.block.name and entry.part and stops[name, entry.part - 1] > entry.start
        ]


def in_order(problem: ModuloProblem, order: Iterable[tuple[int, ModuloBlock]]) -> UnrolledTimeline:
    """Starts blocks of repetitions as early as possible, on each resource in the order given.

    The memory in use depends on that order, and on nothing else.
    """
    free: dict[str, int] = {}
    stops: dict[tuple[str, int], int] = {}
    entries: list[Entry] = []
    for part, block in order:
        waits = [free.get(resource, 0) for resource in block.resources] + [stops[name, part] for name in block.after]
        waits += [stops[name, part - 1] for name, later in problem.carried if later == block.name and part]
        entry = Entry(max(waits, default=0), part, block)
        entries.append(entry)
        stops[block.name, part] = entry.stop
        free |= dict.fromkeys(block.resources, entry.stop)
    return UnrolledTimeline(problem, tuple(entries))


@dataclass(frozen=True, kw_only=True)
class PeriodSearchResult:
    """The result of a search for the shortest period.

    Attributes:
        repetend: The best schedule.
        bound: A period that is proved not to be undercut.
        ended: How the search ended.
        took_s: How long it took.
        num_solved: How many times a solver was asked.
    """

    repetend: Repetend
    bound: int
    ended: SearchEnd = SearchEnd.FINISHED
    took_s: float = field(default=0.0, compare=False)
    num_solved: int = 0

    @property
    def is_optimal(self) -> bool:
        """Whether no period is shorter."""
        return self.repetend.period == self.bound
