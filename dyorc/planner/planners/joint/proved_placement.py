"""Placement and schedule as one problem of constraints, with a proof of how good the answer is (OR-tools' CP-SAT).

Each item is an interval on one of the devices; what one item sends to a device is an interval on what that needs. Durations are
rounded down to whole ticks, so the bound that the solver proves holds for the real durations, too; the answer is scheduled again
with these. With shares, it is also decided how each machine's way out is divided: then the answer is the optimum of both at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from dyorc.planner.plan import SearchEnd
from dyorc.planner.planners import cp_sat
from dyorc.planner.planners.joint.heuristics import PlacedSchedule, PlacementProblem
from dyorc.planner.planners.joint.list_schedule import LinkModel, Rates, schedule

_TICKS = 20_000
"""Of the first answer's seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedPlacement:
    """An answer, and what was proved.

    Attributes:
        placed: The best placement, never worse than the one to begin from.
        rates: How the ways out are divided, if that was to be decided.
        bound_s: No placement takes less.
        is_optimal: Whether the solver proved that, up to the rounding of durations.
        ended: How the search ended.
    """

    placed: PlacedSchedule
    rates: Rates | None
    bound_s: float
    is_optimal: bool
    ended: SearchEnd = SearchEnd.FINISHED

    @property
    def gap_ratio(self) -> float:
        """How far the answer may be from the best, as a part of it."""
        return 1 - self.bound_s / self.placed.total_s if self.placed.total_s else 0.0


def solve(
    problem: PlacementProblem,
    begin: PlacedSchedule,
    max_work: float,
    *,
    seed: int = 0,
    num_shares: int = 0,
) -> ProvedPlacement:
    """Searches for the best placement.

    Args:
        problem: What is placed.
        begin: An answer to begin from.
        max_work: How long it may search, in the solver's own seconds, which do not depend on the machine.
        seed: Of the search.
        num_shares: Into how many shares each way out is divided; 0 if that is not to be decided.
    """
    return _Model(problem, begin, num_shares).solve(max_work, seed)


class _Model:
    def __init__(self, problem: PlacementProblem, begin: PlacedSchedule, num_shares: int) -> None:
        self._problem = problem
        self._work = problem.work
        self._links = problem.links
        self._begin = begin
        self._num_shares = num_shares
        self._tick_s = begin.total_s / _TICKS
        self._ranks = range(problem.cluster.num_ranks)
        self._horizon = _TICKS + 1
        self._model: Any = cp_model.CpModel()
        self._on = [[self._bool(f"home {home} on {rank}") for rank in self._ranks] for home in range(self._work.num_homes)]
        self._ends: list[Any] = []
        self._starts: list[Any] = []
        self._needs: dict[tuple[str, int, int], list[Any]] = {}
        self._shares: dict[tuple[int, int], Any] = {}
        self._build()

    def solve(self, max_work: float, seed: int) -> ProvedPlacement:
        solution = cp_sat.solve(self._model, limit=max_work, seed=seed)
        bound_s = max(solution.bound, 0.0) * self._tick_s
        placed, rates = self._begin, self._first_rates()
        if solution.has_solution:
            better, better_rates = self._answer(solution.value)
            if better.total_s < placed.total_s:
                placed, rates = better, better_rates
        return ProvedPlacement(
            placed=placed,
            rates=rates,
            bound_s=min(bound_s, placed.total_s),
            is_optimal=solution.outcome is cp_sat.SolverStatus.OPTIMAL,
            ended=solution.ended,
        )

    def _answer(self, value: Callable[[Any], int]) -> tuple[PlacedSchedule, Rates | None]:
        placement = tuple(next(rank for rank in self._ranks if value(row[rank])) for row in self._on)
        rates, links = None, self._links
        if self._num_shares:
            rates = {pair: self._rate(pair, value(share)) for pair, share in self._shares.items()}
            links = LinkModel(self._problem.cluster, rates)
        starts = [-float(value(start)) for start in self._starts]
        ways = (starts, self._problem.priority)
        schedules = [schedule(self._work, placement, links, priority) for priority in ways]
        return PlacedSchedule(placement=placement, schedule=min(schedules, key=lambda each: each.total_s)), rates

    def _build(self) -> None:
        model, total = self._model, self._int("total")
        for row in self._on:
            model.add_exactly_one(row)
        for rank in self._ranks:
            room = self._problem.cluster.devices[rank].memory_bytes
            held = [row[rank] * num_bytes for row, num_bytes in zip(self._on, self._work.home_bytes, strict=True)]
            model.add(sum(held) <= room)
        self._add_items(total)
        if self._num_shares:
            self._add_shares()
        for index in range(len(self._work.items)):
            self._add_sendings(index, total)
        for intervals in self._needs.values():
            model.add_no_overlap(intervals)
        model.minimize(total)
        self._hint(total)

    def _add_items(self, total: Any) -> None:
        model = self._model
        for index, item in enumerate(self._work.items):
            start, end = self._int(f"start {index}"), self._int(f"end {index}")
            self._starts.append(start)
            self._ends.append(end)
            model.add(end <= total)
            for rank in self._ranks:
                ticks, is_here = self._ticks(item.seconds[rank]), self._on[item.home][rank]
                interval = model.new_optional_interval_var(start, ticks, end, is_here, f"{index} on {rank}")
                if ticks:
                    self._needs.setdefault(("rank", rank, 0), []).append(interval)
        for index, readers in enumerate(self._work.readers):
            for reader in readers:
                model.add(self._starts[reader] >= self._ends[index])

    def _add_sendings(self, index: int, total: Any) -> None:
        """What an item sends to a device: once, if an item there reads it and this one is elsewhere."""
        model, home = self._model, self._work.items[index].home
        by_home: dict[int, list[int]] = {}
        for reader in sorted(self._work.readers[index]):
            if self._work.items[reader].home != home:
                by_home.setdefault(self._work.items[reader].home, []).append(reader)
        for target in self._ranks if by_home else ():
            arrival = self._int(f"arrival of {index} on {target}")
            for other, readers in by_home.items():
                for reader in readers:
                    model.add(self._starts[reader] >= arrival).only_enforce_if(self._on[other][target])
            for source in self._ranks:
                if source != target:
                    self._add_sending(index, source, target, by_home, arrival)

    def _add_sending(self, index: int, source: int, target: int, by_home: Mapping[int, list[int]], arrival: Any) -> None:
        model, home = self._model, self._work.items[index].home
        is_sent = self._bool(f"{index} from {source} to {target}")
        for other in by_home:
            model.add_bool_or(is_sent, ~self._on[home][source], ~self._on[other][target])
        model.add_implication(is_sent, self._on[home][source])
        start, end = self._int("sent"), self._int("arrived")
        num_values, num_bytes = self._work.bytes_to(index, [reader for readers in by_home.values() for reader in readers])
        ticks = self._duration(source, target, num_values, num_bytes, is_sent)
        interval = model.new_optional_interval_var(start, ticks, end, is_sent, f"{index} from {source} to {target}")
        model.add(start >= self._ends[index]).only_enforce_if(is_sent)
        model.add(arrival >= end).only_enforce_if(is_sent)
        for need in self._links.needs(source, target):
            self._needs.setdefault(need, []).append(interval)

    def _duration(self, source: int, target: int, num_values: int, num_bytes: int, is_sent: Any) -> Any:
        pair = self._links.machine_of[source], self._links.machine_of[target]
        if pair not in self._shares:
            return self._ticks(self._links.seconds(source, target, num_values, num_bytes))
        latency_s, _ = self._links.link(source, target)
        table = [
            self._ticks(num_values * latency_s + num_bytes / self._rate(pair, share)) for share in range(1, self._num_shares + 1)
        ]
        self._model.add(self._shares[pair] >= 1).only_enforce_if(is_sent)
        ticks = self._model.new_int_var(0, max(table), "ticks")
        self._model.add_element(self._shares[pair], [0, *table], ticks)
        return ticks

    def _add_shares(self) -> None:
        """How many shares of its machine's way out each other machine gets; as many of the way in."""
        machines = range(len(self._problem.cluster.machines))
        self._shares = {
            (source, target): self._model.new_int_var(0, self._num_shares, f"share from {source} to {target}")
            for source in machines
            for target in machines
            if source != target
        }
        for machine in machines:
            for end in (0, 1):
                self._model.add(sum(s for pair, s in self._shares.items() if pair[end] == machine) <= self._num_shares)

    def _rate(self, pair: tuple[int, int], share: int) -> float:
        """The bytes a second of some shares; of none, of half a one, so that nothing is endless."""
        cluster = self._problem.cluster
        capacity_out, capacity_in = (cluster.capacity_of(cluster.machines[machine]) for machine in pair)
        return min(capacity_out, capacity_in) * max(share, 0.5) / self._num_shares

    def _first_rates(self) -> Rates | None:
        return self._links.rates if self._num_shares else None

    def _hint(self, total: Any) -> None:
        for home, rank in enumerate(self._begin.placement):
            for other in self._ranks:
                self._model.add_hint(self._on[home][other], other == rank)
        for start, start_s in zip(self._starts, self._begin.schedule.starts, strict=True):
            self._model.add_hint(start, self._ticks(start_s))
        self._model.add_hint(total, self._ticks(self._begin.total_s))

    def _ticks(self, seconds: float) -> int:
        return int(seconds / self._tick_s + 1e-9) if self._tick_s else 0

    def _int(self, name: str) -> Any:
        return self._model.new_int_var(0, self._horizon, name)

    def _bool(self, name: str) -> Any:
        return self._model.new_bool_var(name)
