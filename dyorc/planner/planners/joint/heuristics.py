"""Placements without a proof: HEFT, METIS, random ones, and annealing, which begins from the best of these.

Sources: HEFT: Topcuoglu, Hariri and Wu (TPDS'02). Annealing: Kirkpatrick, Gelatt and Vecchi (Science'83).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import exp
from random import Random

from dyorc.planner.cluster import Cluster
from dyorc.planner.planners.joint.list_schedule import LinkModel, ListSchedule, Placement, schedule, ways_to_end
from dyorc.planner.planners.joint.work_graph import WorkGraph
from dyorc.planner.planners.operation_graphs import partition_graph, scaled_weights

_LARGEST_WEIGHT = 100_000
_FIRST_HEAT, _LAST_HEAT = 0.05, 0.001
"""Of the first placement's seconds: how much worse a placement may be that is accepted as often as not, nearly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSchedule:
    """A placement and its schedule."""

    placement: Placement
    schedule: ListSchedule

    @property
    def total_s(self) -> float:
        """How long a step takes."""
        return self.schedule.total_s


class PlacementProblem:
    """Work, links and priorities, the same for all ways of placing. Not for several threads."""

    def __init__(self, work: WorkGraph, links: LinkModel) -> None:
        self.work = work
        self.links = links
        self.cluster: Cluster = links.cluster
        self.priority = ways_to_end(work, links.cluster)
        self._room = [device.memory_bytes for device in links.cluster.devices]

    def evaluate(self, placement: Placement) -> PlacedSchedule:
        """Returns the placement with its schedule."""
        return PlacedSchedule(placement=placement, schedule=schedule(self.work, placement, self.links, self.priority))

    def fits(self, placement: Placement) -> bool:
        """Whether the parameters and states fit the devices' memories."""
        held = [0] * self.cluster.num_ranks
        for rank, num_bytes in zip(placement, self.work.home_bytes, strict=True):
            held[rank] += num_bytes
        return all(num_bytes <= room for num_bytes, room in zip(held, self._room, strict=True))


def on_one_device(problem: PlacementProblem) -> Placement:
    """Everything on the fastest device."""
    fastest = min(problem.cluster.devices, key=lambda device: -device.flops_per_s)
    return (problem.cluster.devices.index(fastest),) * problem.work.num_homes


def heft(problem: PlacementProblem) -> Placement:
    """Items in the order of their ways to the end, each where it ends first; all of a home go where its first item goes."""
    work, links, num_ranks = problem.work, problem.links, problem.cluster.num_ranks
    homes = dict[int, int]()
    ends, free_s = [0.0] * len(work.items), [0.0] * num_ranks
    held = [0] * num_ranks
    for index in sorted(range(len(work.items)), key=lambda i: (-problem.priority[i], i)):
        item = work.items[index]

        def end_on(rank: int, index: int = index) -> float:
            arrived_s = free_s[rank]
            for source in work.sources[index]:
                other = homes[work.items[source].home]
                sent_s = 0.0 if other == rank else links.seconds(other, rank, *work.bytes_to(source, (index,)))
                arrived_s = max(arrived_s, ends[source] + sent_s)
            return arrived_s + work.items[index].seconds[rank]

        if item.home not in homes:
            num_bytes = work.home_bytes[item.home]
            has_room = [r for r in range(num_ranks) if held[r] + num_bytes <= problem.cluster.devices[r].memory_bytes]
            homes[item.home] = min(has_room or range(num_ranks), key=lambda rank: (end_on(rank), rank))
            held[homes[item.home]] += num_bytes
        rank = homes[item.home]
        ends[index] = free_s[rank] = end_on(rank)
    return tuple(homes[home] for home in range(work.num_homes))


def metis(problem: PlacementProblem) -> Placement:
    """Parts of equal work, by the devices' speeds, between which little is sent."""
    work, num_ranks = problem.work, problem.cluster.num_ranks
    if num_ranks == 1 or work.num_homes <= num_ranks:
        return tuple(home % num_ranks for home in range(work.num_homes))
    weights = [sum(work.items[index].seconds[0] for index in members) for members in work.in_home]
    edges: dict[int, dict[int, float]] = {home: {} for home in range(work.num_homes)}
    for parcel in work.parcels:
        home_of_source = work.items[parcel.source].home
        for other in {work.items[target].home for target in parcel.targets} - {home_of_source}:
            edges[home_of_source][other] = edges[other][home_of_source] = (
                edges[home_of_source].get(other, 0.0) + parcel.num_bytes + 1
            )
    scaled = iter(scaled_weights([weight for others in edges.values() for weight in others.values()], _LARGEST_WEIGHT))
    neighbours = [[(other, next(scaled)) for other in others] for others in edges.values()]
    return tuple(partition_graph(neighbours, scaled_weights(weights, _LARGEST_WEIGHT), problem.cluster.flops_ratios))


def best_of_random(problem: PlacementProblem, num: int, seed: int) -> PlacedSchedule:
    """The best of some random placements."""
    random = Random(seed)
    ranks = range(problem.cluster.num_ranks)
    draws = (tuple(random.choice(ranks) for _ in range(problem.work.num_homes)) for _ in range(num))
    return min((problem.evaluate(draw) for draw in draws), key=lambda placed: placed.total_s)


def best_of_simple(problem: PlacementProblem) -> PlacedSchedule:
    """The best of what needs no search, of what fits the memory if anything does."""
    placements = [problem.evaluate(each(problem)) for each in (on_one_device, heft, metis)]
    return min(placements, key=lambda placed: (not problem.fits(placed.placement), placed.total_s))


def anneal(
    problem: PlacementProblem,
    begin: PlacedSchedule,
    num_steps: int,
    seed: int,
    on_progress: Callable[[float, PlacedSchedule], None] | None = None,
) -> PlacedSchedule:
    """Moves homes one by one, and accepts what is worse the less often the longer it goes on.

    Args:
        problem: What is placed.
        begin: Where to begin.
        num_steps: How many moves are tried.
        seed: Of the moves.
        on_progress: Called with the finished share of the moves, and the best placement so far.
    """
    best = begin
    for number, best in enumerate(_annealing(problem, begin, num_steps, Random(seed))):
        if on_progress and number % 64 == 0:
            on_progress(number / num_steps, best)
    return best


def _annealing(problem: PlacementProblem, begin: PlacedSchedule, num_steps: int, random: Random) -> Iterator[PlacedSchedule]:
    now = best = begin
    num_ranks, num_homes = problem.cluster.num_ranks, problem.work.num_homes
    for step in range(num_steps if num_ranks > 1 and num_homes > 1 else 0):
        heat_s = begin.total_s * _FIRST_HEAT * (_LAST_HEAT / _FIRST_HEAT) ** (step / num_steps)
        placement = _random_move(now.placement, random, num_ranks)
        if not problem.fits(placement) and problem.fits(now.placement):
            yield best
            continue
        candidate = problem.evaluate(placement)
        worse_s = candidate.total_s - now.total_s
        if worse_s <= 0 or random.random() < exp(-worse_s / heat_s):
            now = candidate
            if now.total_s < best.total_s and problem.fits(now.placement) >= problem.fits(best.placement):
                best = now
        yield best


def _random_move(placement: Placement, random: Random, num_ranks: int) -> Placement:
    """One home goes to another device, or two change places."""
    moved = list(placement)
    first, second = random.randrange(len(moved)), random.randrange(len(moved))
    if random.random() < 0.3 and moved[first] != moved[second]:
        moved[first], moved[second] = moved[second], moved[first]
    else:
        moved[first] = (moved[first] + 1 + random.randrange(num_ranks - 1)) % num_ranks
    return tuple(moved)
