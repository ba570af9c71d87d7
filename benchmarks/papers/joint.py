"""Joint optimisation of algebraic transformation, placement and bandwidth (thesis, Memorial University of Newfoundland).

Only the abstract's three figures are known: the latency of training lower by up to 22 % by reduction and placement, by up to
11 % more by dividing bandwidth, and searches up to 650 times quicker. Models, devices and links of the authors are not.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.papers.bands import EXACT, SIMULATED
from benchmarks.papers.measured import Builder, program_of
from benchmarks.papers.models import inception, unet
from benchmarks.papers.rows import fact_row, not_here_row, number_row, own_row, ratio_row, sign_row
from benchmarks.papers.study import Progress, Study, kept, unjudged
from benchmarks.papers.table import Kind, Line, Row
from dyorc.planner.cluster import Cluster, even_cluster
from dyorc.planner.models import bert_moe, gpt
from dyorc.planner.network import ovs_rules, rules_of, tc_rules, to_ovs, to_tc
from dyorc.planner.planners.joint.bandwidth import Capacities, CriticalPathGraph, Division, by_tangents, fixed_point
from dyorc.planner.planners.joint.heuristics import (
    PlacedSchedule,
    PlacementProblem,
    anneal,
    best_of_random,
    best_of_simple,
    heft,
    metis,
    on_one_device,
)
from dyorc.planner.planners.joint.interface_limits import network_of
from dyorc.planner.planners.joint.list_schedule import LinkModel
from dyorc.planner.planners.joint.proved_placement import ProvedPlacement, solve
from dyorc.planner.planners.joint.reduce import Reduction, reduce_work, refine_placement
from dyorc.planner.planners.joint.schedule_plan import build_plan
from dyorc.planner.planners.joint.work_graph import WorkGraph, work_of
from dyorc.planner.program import TensorProgram
from dyorc.planner.simulate import simulate

_ABOUT = """The thesis and its testbed are not public. Its three figures are from the abstract, and are the largest that the
authors saw. Ours are of small models on 4 machines with one device of 1 Gflop/s each and 100 MB/s between them, in our
simulator. How graphs are reduced and bandwidth is divided is our own formulation."""

_MODELS: Mapping[str, tuple[Builder, Mapping[str, int]]] = {
    "Inception, 2 blocks": (inception, {}),
    "GPT, 2 layers": (gpt, {}),
    "BERT with 4 experts": (bert_moe, {}),
    "U-Net, 1 stage": (unet, {"stages": 1}),
}
_QUICK = ("Inception, 2 blocks",)
_NUM_RANKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Effort:
    """How long searches may take, in the solver's own seconds, and annealing's moves."""

    reduced: float
    whole: float
    moves: int


def reproduce(*, quick: bool = False, progress: Progress = lambda text: None) -> Study:
    """Returns the table, to be computed.

    Args:
        quick: Only one model, shorter searches, and two of four settings of real ranks.
        progress: Called with the name of each step.
    """
    effort = _Effort(reduced=1.0, whole=2.0, moves=100) if quick else _Effort(reduced=2.0, whole=6.0, moves=400)
    rows: list[Row] = []
    parts: dict[str, Iterable[Row | Line]] = {
        **{name: kept(_model_rows(name, effort, progress), rows) for name in (_QUICK if quick else _MODELS)},
        "largest of all models": _largest(rows),
        "placement and shares at once": at_once(),
        "commands": commands(),
        "real ranks": measured(progress, quick=quick),
        "not here": _testbed(),
    }
    left_out: tuple[str, ...] = ()
    if quick:
        parts |= {name: unjudged(parts[name], "longer searches") for name in _QUICK}
        del parts["largest of all models"]
        others = (name for name in _MODELS if name not in _QUICK)
        left_out = (*others, "largest of all models", "real ranks that lend, two of four")
    title = "Joint placement and bandwidth (thesis, Memorial University of Newfoundland)"
    return Study(name="joint", title=title, about=_ABOUT, parts=parts, is_quick=quick, left_out=left_out)


def _model_rows(name: str, effort: _Effort, progress: Progress) -> Iterator[Row]:
    build, sizes = _MODELS[name]
    progress(f"{name}: capturing")
    yield from _Searches(name, program_of(build, **sizes), effort, progress).rows()


def _largest(rows: Sequence[Row]) -> Iterator[Row]:
    """Yields the largest figure of all models, which is what the abstracts state."""
    for what, published, ends in (
        ("search time without reduction / with it", "650", "without reduction / with it"),
        ("latency lower than the best baseline's, by per cent", "22", "best baseline's"),
        ("latency lower by dividing bandwidth, by per cent", "11", "dividing bandwidth, strict"),
        ("ICC 2025: latency lower than others', by per cent", "32", "best baseline's"),
    ):
        percentages = [float(row.ours.removeprefix("more than ").removesuffix("%")) for row in rows if row.what.endswith(ends)]
        neutral = 0.0 if what.endswith("per cent") else 1.0
        yield ratio_row("abstract", f"all models: {what}, the largest", float(published), max(percentages), neutral=neutral)


def cluster_of(num_ranks: int = _NUM_RANKS) -> Cluster:
    """The machines of the table."""
    return even_cluster(num_ranks, flops_per_s=1e9, bytes_per_s=1e8, latency_s=1e-5)


class _Searches:
    """One model on the machines of the table."""

    def __init__(self, name: str, program: TensorProgram, effort: _Effort, progress: Progress) -> None:
        self._name = name
        self._program = program
        self._effort = effort
        self._progress = progress
        self._cluster = cluster_of()
        self._before = work_of(program, self._cluster)
        self._whole = PlacementProblem(self._before, LinkModel(self._cluster))

    def rows(self) -> Iterator[Row]:
        self._progress(f"{self._name}: searching the compact graph")
        reduction, solved, reduced_s = self._search_reduced()
        yield self._sizes(reduction, solved)
        begun_s = time.perf_counter()
        begin = min(
            [
                self._whole.evaluate(refine_placement(reduction, self._before, solved.placed.placement)),
                best_of_simple(self._whole),
            ],
            key=lambda placed: placed.total_s,
        )
        best = anneal(self._whole, begin, self._effort.moves, 0)
        reduced_s += time.perf_counter() - begun_s
        self._progress(f"{self._name}: searching the whole graph")
        yield from self._whole_graph(best, solved, reduced_s)
        yield from self._baselines(best)
        yield self._shares_alone()
        yield from self._divided(best)

    def _search_reduced(self) -> tuple[Reduction, ProvedPlacement, float]:
        begun_s = time.perf_counter()
        reduction = reduce_work(self._program, self._cluster, before=self._before)
        problem = PlacementProblem(reduction.work, LinkModel(self._cluster))
        solved = solve(problem, anneal(problem, best_of_simple(problem), self._effort.moves, 0), self._effort.reduced)
        return reduction, solved, time.perf_counter() - begun_s

    def _sizes(self, reduction: Reduction, solved: ProvedPlacement) -> Row:
        proved = "proved optimal" if solved.is_optimal else f"gap {solved.gap_ratio:.1%}"
        return _own(
            f"{self._name}: items and homes, before and after reduction",
            f"{reduction.num_items[0]} to {reduction.num_items[1]}, {reduction.num_homes[0]} to {reduction.num_homes[1]}",
            f"compact graph: {_ms(solved.placed.total_s)}, {proved}",
        )

    def _whole_graph(self, best: PlacedSchedule, solved: ProvedPlacement, reduced_s: float) -> Iterator[Row]:
        """The same solver on the graph as it is, from HEFT's placement."""
        begun_s = time.perf_counter()
        begin = self._whole.evaluate(heft(self._whole))
        without = solve(self._whole, begin, self._effort.whole)
        took_s = time.perf_counter() - begun_s
        reaches = without.placed.total_s <= best.total_s * 1.001
        yield sign_row(
            "abstract",
            f"{self._name}: search time without reduction / with it",
            "up to 650",
            f"{'' if reaches else 'more than '}{took_s / reduced_s:.1f}",
            is_so=took_s > reduced_s,
            note=f"{took_s:.1f} s and {reduced_s:.1f} s; without, {_ms(without.placed.total_s)} when its time was over"
            f"{' (proved)' if without.is_optimal else ''}, with, {_ms(best.total_s)}",
        )
        bound_s = max(without.bound_s, 1e-12)
        yield _own(
            f"{self._name}: distance from the bound of the whole graph, and of the compact optimum",
            f"{best.total_s / bound_s - 1:.1%}, {solved.placed.total_s / bound_s - 1:.1%}",
            "the bound is loose where the search ran out of its time" if not without.is_optimal else "the bound is the optimum",
        )

    def _baselines(self, best: PlacedSchedule) -> Iterator[Row]:
        """What others do. Annealing may try as many moves as the joint search does in both of its graphs."""
        begun_s, num_moves = time.perf_counter(), 2 * self._effort.moves
        annealed = anneal(self._whole, best_of_simple(self._whole), num_moves, 0)
        annealed_s = time.perf_counter() - begun_s
        times = {
            "one device": self._whole.evaluate(on_one_device(self._whole)).total_s,
            "HEFT": self._whole.evaluate(heft(self._whole)).total_s,
            "METIS": self._whole.evaluate(metis(self._whole)).total_s,
            "best of 100 random": best_of_random(self._whole, 100, 0).total_s,
            "annealing": annealed.total_s,
        }
        closest = min(times.values())
        yield sign_row(
            "abstract",
            f"{self._name}: latency lower than the best baseline's",
            "up to 22 %",
            f"{1 - best.total_s / closest:.1%}",
            is_so=_is_gain(1 - best.total_s / closest),
            note=", ".join(f"{name} {_ms(seconds)}" for name, seconds in times.items()) + f"; joint {_ms(best.total_s)}",
        )
        yield _own(
            f"{self._name}: latency lower than that of simulated annealing",
            f"{1 - best.total_s / annealed.total_s:.1%}",
            f"{num_moves} moves on the whole graph from the best of one device, HEFT and METIS, in {annealed_s:.1f} s; "
            "the joint search anneals as often, half of it on the compact graph",
        )

    def _shares_alone(self) -> Row:
        """Bandwidth is divided for placements that were made without it, in their order."""
        capacities, gaps = Capacities(self._cluster), dict[str, tuple[float, float]]()
        for name, place in (("HEFT", heft), ("METIS", metis)):
            timeline = CriticalPathGraph(
                self._before, self._whole.evaluate(place(self._whole)).schedule, LinkModel(self._cluster)
            )
            gaps[name] = timeline.total_s(capacities.even_rates()), by_tangents(timeline, capacities).total_s
        return _own(
            f"{self._name}: bandwidth only: latency lower by dividing it for HEFT's and METIS' placements, strict",
            ", ".join(f"{1 - divided_s / even_s:.1%}" for even_s, divided_s in gaps.values()),
            ", ".join(f"{name} {_ms(even_s)} to {_ms(divided_s)}" for name, (even_s, divided_s) in gaps.items()),
        )

    def _divided(self, best: PlacedSchedule) -> Iterator[Row]:
        """Strict shares, and shares that lend: even ones against divided ones, by the simulator."""
        capacities, timeline = Capacities(self._cluster), CriticalPathGraph(self._before, best.schedule, LinkModel(self._cluster))
        near, division = fixed_point(timeline, capacities), by_tangents(timeline, capacities)
        plan = build_plan(self._program, self._cluster, self._before, best)

        def simulated_s(rates: Mapping[tuple[int, int], float], is_strict: bool) -> float:
            limited = replace(plan, network=network_of(rates, self._cluster, is_strict=is_strict))
            return simulate(limited, self._program, self._cluster).total_s

        without_s = simulate(plan, self._program, self._cluster).total_s
        for is_strict in (True, False):
            even_s, divided_s = simulated_s(capacities.even_rates(), is_strict), simulated_s(division.rates, is_strict)
            chosen_s = min(even_s, divided_s)
            yield sign_row(
                "abstract",
                f"{self._name}: latency lower by dividing bandwidth, {'strict' if is_strict else 'lending'}",
                "up to 11 %",
                f"{1 - chosen_s / even_s:.1%}",
                is_so=_is_gain(1 - chosen_s / even_s),
                note=f"even shares {_ms(even_s)}, divided {_ms(divided_s)}, one way out in turns "
                f"{_ms(without_s)}; the planner keeps the best of all, so it is never worse",
            )
        yield _pass_row(self._name, timeline, capacities, near, division)


def _pass_row(name: str, timeline: CriticalPathGraph, capacities: Capacities, near: Division, division: Division) -> Row:
    even_s = timeline.total_s(capacities.even_rates())
    return _own(
        f"{name}: shares for a fixed order: fixed point and linear program, against even shares",
        f"{near.total_s / even_s:.3f}, {division.total_s / even_s:.3f}",
        f"bound {division.bound_s / even_s:.3f}, after {division.num_rounds} rounds of tangents",
    )


def at_once() -> Iterator[Row]:
    """Placement and shares of a small graph: each alone, in turns, and at once."""
    from dyorc.planner.planners.joint.work_graph import Item, Parcel

    seconds = (1.0, 2.0, 0.5, 2.0, 1.0, 1.5, 0.5)
    sent = [(0, (1, 2, 3), 700), (1, (4,), 900), (2, (4, 5), 400), (3, (5,), 1400), (4, (6,), 300), (5, (6,), 500)]
    work = WorkGraph(
        items=tuple(Item(nodes=(str(i),), seconds=(s,) * 3, home=i) for i, s in enumerate(seconds)),
        parcels=tuple(Parcel(*each) for each in sent),
        home_bytes=(0,) * len(seconds),
        shared=frozenset(),
    )
    cluster = even_cluster(3, bytes_per_s=1000, latency_s=0.01)
    capacities = Capacities(cluster)
    problem = PlacementProblem(work, LinkModel(cluster, capacities.even_rates()))
    placed = solve(problem, best_of_simple(problem), 20.0).placed
    alone_s = placed.total_s
    shares_s = by_tangents(CriticalPathGraph(work, best_of_simple(problem).schedule, LinkModel(cluster)), capacities).total_s
    turns_s = alone_s
    for _ in range(4):
        division = by_tangents(CriticalPathGraph(work, placed.schedule, LinkModel(cluster)), capacities)
        again = PlacementProblem(work, LinkModel(cluster, division.rates))
        placed = solve(again, again.evaluate(placed.placement), 20.0).placed
        turns_s = min(turns_s, division.total_s, placed.total_s)
    best = solve(problem, problem.evaluate(placed.placement), 60.0, num_shares=8)
    division = by_tangents(CriticalPathGraph(work, best.placed.schedule, LinkModel(cluster)), capacities)
    yield _own(
        "7 items on 3 machines: shares alone, placement alone, in turns, both at once",
        f"{shares_s:.3f} s, {alone_s:.3f} s, {turns_s:.3f} s, {min(best.placed.total_s, division.total_s):.3f} s",
        f"at once by eighths{' (proved)' if best.is_optimal else ''}, then by the linear program",
    )


def commands() -> Iterator[Row]:
    """Rules of a division become commands, and these the same rules again."""
    cluster = cluster_of()
    network = network_of(Capacities(cluster).best_rates({(0, 1): 5.0, (0, 2): 2.0, (1, 3): 1.0}), cluster, is_strict=False)
    rules = rules_of(network, cluster)
    same = [parse(emit(each)) == each for each in rules.values() for emit, parse in ((to_ovs, ovs_rules), (to_tc, tc_rules))]
    yield fact_row(
        "abstract",
        "Open vSwitch queues and flows, and policy routing, from a plan: texts that read back as the same rules",
        str(len(same)),
        str(sum(same)),
        is_so=all(same),
        band=EXACT,
        kind=Kind.OWN,
        note="`dyorc plan network`; as tc commands they are run between two network namespaces by a test",
    )


def measured(progress: Progress, *, quick: bool = False) -> Iterator[Row]:
    """Real ranks on emulated machines: what a step takes, against the simulator; quickly, without two of the four settings."""
    from statistics import median

    import torch

    from dyorc.planner.program import ValueKind
    from dyorc.planner.runtime import RankOptions, Ranks, egress_of, paces_of

    program = program_of(inception)
    cluster = even_cluster(_NUM_RANKS, flops_per_s=2e7, bytes_per_s=2e6, latency_s=2e-3)
    work = work_of(program, cluster)
    problem = PlacementProblem(work, LinkModel(cluster))
    best = anneal(problem, best_of_simple(problem), 300, 0)
    plan = build_plan(program, cluster, work, best)
    capacities, num_steps = Capacities(cluster), 2 if quick else 4
    division = by_tangents(CriticalPathGraph(work, best.schedule, LinkModel(cluster)), capacities)
    sources = {
        name: torch.zeros(value.shape, dtype=getattr(torch, value.dtype))
        for name in program.sources
        for value in [program.values[name]]
    }
    inputs = {name: sources[name] for name in program.sources if program.values[name].kind is ValueKind.INPUT}
    for what, rates in (("even", capacities.even_rates()), ("divided", division.rates)):
        for is_strict in (what == "even",) if quick else (True, False):
            progress(f"real ranks, {what} shares, {'strict' if is_strict else 'lending'}")
            network = network_of(rates, cluster, is_strict=is_strict)
            limited = replace(plan, network=network)
            predicted_s = simulate(limited, program, cluster).total_s
            with Ranks(RankOptions(num_ranks=_NUM_RANKS, egress=egress_of(cluster, network))) as ranks:
                ranks.load(limited, sources, overlap=True, paces=tuple(paces_of(limited, program, cluster)))
                steps: list[float] = []
                for _ in range(num_steps):
                    ranks.begin_step(inputs, [program.loss])
                    steps.append(max(ranks.end_step().seconds))
            yield number_row(
                "own check",
                f"seconds of a step on real ranks, {what} shares, {'strict' if is_strict else 'lending'}",
                predicted_s,
                median(steps[1:]),
                band=SIMULATED,
                kind=Kind.OWN,
                note="beside our simulator; 4 gloo ranks on 2 cores, their computation filled up with sleep to that of "
                f"20 Mflop/s, 2 MB/s between them; median of {num_steps - 1}",
            )


def _testbed() -> Iterator[Row]:
    yield not_here_row(
        "abstract",
        "training on servers with GPUs behind Open vSwitch",
        "latency lower by up to 22 % and 11 %",
        "no such machines; neither models nor links are published. Per-destination queues do not work on the userspace "
        "datapath of Open vSwitch, the only one here",
    )


def _own(what: str, ours: str, note: str) -> Row:
    """What nothing is published about."""
    return own_row("own check", what, ours, note)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"


def _is_gain(ratio: float) -> bool:
    return ratio > 0.001
