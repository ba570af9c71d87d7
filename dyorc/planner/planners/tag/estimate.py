"""Estimates how long a step takes under some actions, without building the plan.

Costs are those of the cluster and of the adapters' paths, as in the plan. What is simpler than in the simulator: everything is
served in the program's order, operations that follow each other on the same devices wait for what any of them needs, and memory
is what stays for the backward pass plus parameters and gradients. A thousand operations take a few milliseconds.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Mesh, MeshAxis
from dyorc.planner.plan.adapters import Adapters, Spot, Tensor, seconds_on, tensor_of
from dyorc.planner.planners.tag.group_actions import Action, Ranks, SearchContext
from dyorc.planner.planners.tag.stretches import SpotNeed, Stretch, Stretches
from dyorc.planner.program import REPLICATE, Placement, Shard


class RedistributionCosts:
    """Finds the seconds of movements. Paths are remembered, by shape. Not for several threads."""

    def __init__(self, context: SearchContext) -> None:
        self._context = context
        self._adapters = Adapters(seconds_on(context.cluster))
        self._meshes: dict[Ranks, Mesh] = {}
        self._tensors: dict[str, Tensor] = {}

    def seconds(self, name: str, before: tuple[Ranks, Placement], after: tuple[Ranks, Placement]) -> float:
        """Returns how long it takes to bring a value from some ranks and a placement on them to others."""
        tensor = self._tensor(name)
        return self._adapters.path(tensor, self._spot(tensor, *before), self._spot(tensor, *after)).cost

    def _tensor(self, name: str) -> Tensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            tensor = self._tensors[name] = tensor_of(self._context.program, self._context.choices.axes, name)
        return tensor

    def _spot(self, tensor: Tensor, ranks: Ranks, placement: Placement) -> Spot:
        mesh = self._meshes.get(ranks)
        if mesh is None:
            axis = MeshAxis(name="data", size=len(ranks))
            mesh = self._meshes[ranks] = Mesh(name="-".join(map(str, ranks)), axes=(axis,), ranks=ranks)
        if isinstance(placement, Shard):
            placement = self._adapters.shard(tensor, mesh, (), placement.dim) or REPLICATE
        return Spot(mesh, (placement,))


_LEAST_MOVE_S = 1e-8
"""What takes less is no movement: it is a cut of what is there."""


class Estimate(NamedTuple):
    """What a step needs.

    Attributes:
        total_s: How long it takes.
        memory_bytes: For each rank.
        busy_s: For each rank, how long it computes.
        spans_s: For each op group, the time from when its first operation begins until its last one ends.
        idle_s: For each op group, how long devices wait after its operations, summed over devices.
    """

    total_s: float
    memory_bytes: tuple[int, ...]
    busy_s: tuple[float, ...]
    spans_s: tuple[float, ...]
    idle_s: tuple[float, ...]

    def fits(self, cluster: Cluster) -> bool:
        """Whether every device has the memory that it needs."""
        return all(need <= device.memory_bytes for need, device in zip(self.memory_bytes, cluster.devices, strict=True))


class _Move(NamedTuple):
    took_s: float
    lines: tuple[int, ...]
    kept: tuple[tuple[int, int], ...]


class Estimator:
    """Estimates many deployments of one program. Not for several threads."""

    def __init__(self, context: SearchContext) -> None:
        self.context = context
        self._stretches = Stretches(context)
        self._paths = RedistributionCosts(context)
        self._moves: dict[tuple[int, int, int], _Move] = {}
        self._lines: dict[tuple[str | int, ...], int] = {}
        self._beginnings: dict[tuple[int, Action], Stretch] = {}
        self._last: tuple[Sequence[Action], Estimate] | None = None

    def estimate(self, actions: Sequence[Action]) -> Estimate:
        """Estimates a step. The latest is remembered."""
        if self._last is None or self._last[0] != actions:
            self._last = actions, self._compute_estimate(actions)
        return self._last[1]

    def _compute_estimate(self, actions: Sequence[Action]) -> Estimate:
        passing, stretches = _Pass(self), self._stretches
        for group, action in enumerate(actions):
            passing.begin(self._beginning(group, action))
        for block, (group, _) in enumerate(stretches.blocks):
            for stretch in stretches.of_block(block, actions[group]):
                passing.run(stretch, group)
        return passing.estimate()

    def move(self, value: int, before: int, after: int) -> _Move:
        """The movement that brings a value from one spot to another."""
        move = self._moves.get((value, before, after))
        if move is None:
            name, spots = self._stretches.values[value], self._stretches.spots
            took_s = self._paths.seconds(name, spots[before], spots[after])
            ranks, placement = spots[after]
            kept = self._stretches.kept_bytes(name, ranks, placement) if ranks != spots[before][0] else 0
            lines = self._lines_of(spots[before][0], ranks) if took_s > _LEAST_MOVE_S else ()
            move = _Move(took_s, lines, tuple((rank, kept) for rank in ranks) if kept else ())
            self._moves[value, before, after] = move
        return move

    def _beginning(self, group: int, action: Action) -> Stretch:
        stretch = self._beginnings.get((group, action))
        if stretch is None:
            stretch = self._beginnings[group, action] = self._stretches.beginning(group, action)
        return stretch

    def _lines_of(self, before: Ranks, after: Ranks) -> tuple[int, ...]:
        """What a movement has for itself: ways out of and into machines, or its ranks' channel within one."""
        devices = self.context.cluster.devices
        sources, targets = ({devices[rank].machine for rank in ranks} for ranks in (before, after))
        keys = [(machine, "out") for machine in sorted(sources)] + [(machine, "in") for machine in sorted(targets)]
        if len(sources | targets) == 1:
            return (self._lines.setdefault((*sorted({*before, *after}),), len(self._lines)),)
        return tuple(self._lines.setdefault(key, len(self._lines)) for key in keys)


class _Pass:
    """One pass through the program."""

    def __init__(self, estimator: Estimator) -> None:
        num_ranks, num_groups = estimator.context.cluster.num_ranks, len(estimator.context.groups)
        self._estimator = estimator
        self._free_s = [0.0] * num_ranks
        self._busy_s = [0.0] * num_ranks
        self._memory = [0] * num_ranks
        self._lines: dict[int, float] = {}
        self._there_s: dict[int, float] = {}  # when a value is in a spot; 0 for its own ranks, who have it in their order
        self._made: dict[int, tuple[int, float]] = {}  # where a value was made, and when
        self._last_s = 0.0
        self._latest = [0] * num_ranks  # the group that each rank worked for last
        self._begun_s = [float("inf")] * num_groups
        self._ended_s = [0.0] * num_groups
        self._idle_s = [0.0] * num_groups

    def estimate(self) -> Estimate:
        spans = [max(end_s - begin_s, 0.0) for begin_s, end_s in zip(self._begun_s, self._ended_s, strict=True)]
        total_s = max(self._last_s, *self._free_s)
        return Estimate(total_s, tuple(self._memory), tuple(self._busy_s), tuple(spans), tuple(self._idle_s))

    def begin(self, stretch: Stretch) -> None:
        """Sources are where they are held."""
        self._finish(stretch, 0.0)

    def run(self, stretch: Stretch, group: int) -> None:
        arrived_s = 0.0
        for need in stretch.needs:
            there_s = self._there_s.get(need.key)
            if there_s is None:
                there_s = self._arrival(need)
            if there_s > arrived_s:
                arrived_s = there_s
        if stretch.work:
            end_s = self._work(stretch, group, arrived_s)
        else:
            end_s = max([arrived_s, *(self._made[need.value][1] for need in stretch.needs if need.value in self._made)])
        self._finish(stretch, end_s)
        for need in stretch.wants:
            self._last_s = max(self._last_s, self._arrival(need))

    def _work(self, stretch: Stretch, group: int, arrived_s: float) -> float:
        """When all ranks have done the work."""
        free_s, busy_s, latest, end_s = self._free_s, self._busy_s, self._latest, arrived_s
        for rank, each_s in stretch.work:
            begin_s = free_s[rank]
            if arrived_s > begin_s:
                self._idle_s[latest[rank]] += arrived_s - begin_s
                begin_s = arrived_s
            if begin_s < self._begun_s[group]:
                self._begun_s[group] = begin_s
            latest[rank] = group
            busy_s[rank] += each_s
            done_s = free_s[rank] = begin_s + each_s
            if done_s > end_s:
                end_s = done_s
        self._ended_s[group] = end_s
        return end_s

    def _finish(self, stretch: Stretch, end_s: float) -> None:
        there_s, made = self._there_s, self._made
        for key, value, spot, _ in stretch.makes:
            there_s[key] = 0.0
            made[value] = spot, end_s
        for rank, num_bytes in stretch.kept:
            self._memory[rank] += num_bytes

    def _arrival(self, need: SpotNeed) -> float:
        """When a value has been brought where it is needed."""
        before, found_s = (need.source, 0.0) if need.source >= 0 else self._made[need.value]
        if before != need.spot:
            move = self._estimator.move(need.value, before, need.spot)
            if move.lines:
                lines = self._lines
                found_s = max(found_s, *(lines.get(line, 0.0) for line in move.lines)) + move.took_s
                for line in move.lines:
                    lines[line] = found_s
                for rank, num_bytes in move.kept:
                    self._memory[rank] += num_bytes
        self._there_s[need.key] = found_s
        return found_s
