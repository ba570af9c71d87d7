"""The planner: reduces the graph, places it with a proof, and refines that on the original graph; then divides the ways out, and
repeats the last two until nothing is gained.

Every result is simulated, with and without limits; the quickest plan that fits the memory is returned. So limits never make
a plan slower than the same search without them.
"""

from dataclasses import replace

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Network, Plan, Provenance, SearchEnd
from dyorc.planner.planners import Progress
from dyorc.planner.planners.joint.bandwidth import Capacities, CriticalPathGraph, by_tangents
from dyorc.planner.planners.joint.heuristics import PlacedSchedule, PlacementProblem, anneal, best_of_simple
from dyorc.planner.planners.joint.interface_limits import network_of
from dyorc.planner.planners.joint.list_schedule import LinkModel, Rates
from dyorc.planner.planners.joint.proved_placement import ProvedPlacement, solve
from dyorc.planner.planners.joint.reduce import Reduction, reduce_work, refine_placement, sizes_text
from dyorc.planner.planners.joint.schedule_plan import build_plan
from dyorc.planner.planners.joint.work_graph import WorkGraph, work_of
from dyorc.planner.planners.pricing import BestPlan
from dyorc.planner.program import TensorProgram, axes_of

_MAX_TURNS = 4
_SHARES = 8
_MAX_HOMES_AT_ONCE = 8
"""Up to so many homes, placement and shares are also decided at once."""


def joint(
    program: TensorProgram,
    cluster: Cluster,
    *,
    max_items: int = 48,
    max_work: float = 4.0,
    anneal_steps: int = 400,
    limits: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Plan:
    """Plans whole operations on single devices, and how machines divide their ways out.

    Ctrl-C ends the search with the best plan so far; before there is one, it is passed on.

    Args:
        program: What is distributed.
        cluster: Where it runs.
        max_items: How many items the compact graph may have.
        max_work: How long each search for a proof may take, in the solver's own seconds, which do not depend on the machine.
        anneal_steps: How many moves annealing tries before.
        limits: Whether to divide the ways out.
        seed: Of all random numbers.
        progress: Called with the progress of the search.

    Raises:
        PlanError: No placement has the memory that it needs.
    """
    search = _Search(program, cluster, seed, progress)
    before = work_of(program, cluster)
    return search.plan(before, reduce_work(program, cluster, max_items, before), (anneal_steps, max_work), limits=limits)


class _Search:
    def __init__(self, program: TensorProgram, cluster: Cluster, seed: int, progress: Progress | None) -> None:
        self._program = program
        self._cluster = cluster
        self._seed = seed
        self._axes = axes_of(program)
        self._best = BestPlan(program, cluster, progress=progress, reorder=False, must_fit=True)
        self._done = 0.0
        self._notes: dict[str, str] = {}

    def plan(self, before: WorkGraph, reduction: Reduction, effort: tuple[int, float], *, limits: bool) -> Plan:
        self._notes |= sizes_text(reduction)
        with self._best.until_stopped():
            self._find(before, reduction, effort, limits=limits)
        error = f"no placement of {self._program.name} on {self._cluster.name} fits the devices' memories"
        return self._best.finish(error, Provenance(planner="joint", seed=self._seed, notes=self._notes))

    def _find(self, before: WorkGraph, reduction: Reduction, effort: tuple[int, float], *, limits: bool) -> None:
        problem, whole = (
            PlacementProblem(reduction.work, LinkModel(self._cluster)),
            PlacementProblem(before, LinkModel(self._cluster)),
        )
        first = best_of_simple(problem)
        self._confirm(problem, first, None)
        solved = self._prove(problem, first, effort)
        self._confirm(problem, solved.placed, None)
        if solved.ended is not SearchEnd.FINISHED:
            return
        begin = min(
            [whole.evaluate(refine_placement(reduction, before, solved.placed.placement)), best_of_simple(whole)],
            key=lambda placed: (not whole.fits(placed.placement), placed.total_s),
        )
        placed = self._anneal(whole, begin, effort[0], 0.6)
        self._confirm(whole, placed, None)
        if limits and len(self._cluster.machines) > 2:
            self._take_turns(before, placed, effort[0])
            if reduction.work.num_homes <= _MAX_HOMES_AT_ONCE:
                self._at_once(reduction, solved.placed, effort)

    def _prove(self, problem: PlacementProblem, begin: PlacedSchedule, effort: tuple[int, float]) -> ProvedPlacement:
        """The best placement of the compact graph that the search finds, and how far from the optimum it may be."""
        solved = solve(problem, self._anneal(problem, begin, effort[0], 0.2), effort[1], seed=self._seed)
        self._notes["bound of the compact graph"] = f"{solved.bound_s:.6g} s"
        self._notes["gap"] = f"{solved.gap_ratio:.2%}" + (" (proved)" if solved.is_optimal else "")
        self._best.ended = solved.ended
        self._done = 0.4
        self._best.report(self._done)
        return solved

    def _anneal(self, problem: PlacementProblem, begin: PlacedSchedule, num_steps: int, until: float) -> PlacedSchedule:
        first_ratio = self._done

        def on_progress(done_ratio: float, _: PlacedSchedule) -> None:
            self._best.report(first_ratio + (until - first_ratio) * done_ratio)

        placed = anneal(problem, begin, num_steps, self._seed, on_progress)
        self._done = until
        return placed

    def _take_turns(self, work: WorkGraph, placed: PlacedSchedule, num_steps: int) -> None:
        """Divides for a placement, places for a division, until a turn gains nothing."""
        capacities, best_s = Capacities(self._cluster), float("inf")
        for turn in range(_MAX_TURNS):
            division = by_tangents(CriticalPathGraph(work, placed.schedule, LinkModel(self._cluster)), capacities)
            problem = PlacementProblem(work, LinkModel(self._cluster, division.rates))
            self._confirm(problem, problem.evaluate(placed.placement), division.rates)
            if division.total_s >= best_s * (1 - 1e-4):
                break
            placed = self._anneal(problem, problem.evaluate(placed.placement), num_steps, 0.6 + 0.35 * (turn + 1) / _MAX_TURNS)
            best_s = division.total_s
            self._confirm(problem, placed, division.rates)
            self._notes["turns"] = str(turn + 1)

    def _at_once(self, reduction: Reduction, placed: PlacedSchedule, effort: tuple[int, float]) -> None:
        """Decides placement and shares together: the optimum, where it ends in time."""
        links = LinkModel(self._cluster, Capacities(self._cluster).even_rates())
        problem = PlacementProblem(reduction.work, links)
        solved = solve(problem, problem.evaluate(placed.placement), effort[1], seed=self._seed, num_shares=_SHARES)
        self._notes["gap with shares"] = f"{solved.gap_ratio:.2%}" + (" (proved)" if solved.is_optimal else "")
        self._best.ended = solved.ended
        self._confirm(problem, solved.placed, solved.rates)

    def _confirm(self, problem: PlacementProblem, placed: PlacedSchedule, rates: Rates | None) -> None:
        """Simulates a placement, with limits of both kinds if rates are given, and keeps it if it is the best."""
        plan = build_plan(self._program, self._cluster, problem.work, placed, self._axes)
        networks: list[Network | None] = [None]
        if rates is not None:
            networks = [network_of(rates, self._cluster, is_strict=is_strict) for is_strict in (True, False)]
        for network in networks:
            self._best.offer(replace(plan, network=network))
        self._best.report(self._done)
