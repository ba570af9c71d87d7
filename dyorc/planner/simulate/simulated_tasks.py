"""Takes a plan apart into tasks: what one rank computes in a step, or what a group of ranks exchanges.

A task says what it waits for, how long it takes, which links between machines it needs, and which pieces it reads and makes.
Views and the like are no tasks: what they make is the same memory, at the same time. What they take counts with the rank's next
task, where the cluster says that they take anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Apply, ChannelKind, Collective, CollectiveKind, Coordinate, Kernel, Mesh, Plan, Transfer, overlap
from dyorc.planner.plan.kernels import NUM_TERMS, Parts, parts_of
from dyorc.planner.program import Partial, Replicate, TensorProgram
from dyorc.planner.program.costs import FREE, NodeCost, costs_of
from dyorc.planner.program.graph import type_sizes
from dyorc.planner.simulate.kernel_times import ChunkTimes, kernel_s
from dyorc.planner.simulate.machine_ports import NetworkFlow, Ports
from dyorc.planner.simulate.rank_kinds import RankGroup, RankKinds, groups_along, ranks_alike
from dyorc.planner.simulate.sizes import Sizes

PieceKey = tuple[str, int, int]
"""A placed tensor, a rank, and the part of the work."""


class SimulatedTask(NamedTuple):
    """Something that takes time.

    Attributes:
        step: The index of its step in the plan.
        ranks: Who takes part.
        duration_s: How long it takes once it has begun.
        is_communication: Whether its ranks exchange something; otherwise its rank computes.
        ports: Ways out of and into machines that it needs for itself.
        after: Tasks that must have ended before.
        reads: Buffers that it needs until it ends.
        makes: Buffers that it fills from when it begins.
        flow: What its speed depends on; without that, it takes what it takes.
        others: The ranks of groups that do the same at the same time, which have no tasks of their own.
    """

    step: int
    ranks: tuple[int, ...]
    duration_s: float
    is_communication: bool
    ports: tuple[int, ...]
    after: tuple[int, ...]
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    flow: NetworkFlow | None = None
    others: tuple[tuple[int, ...], ...] = ()


class Buffer(NamedTuple):
    """Memory on a device."""

    rank: int
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """A plan's tasks, in an order in which they can run.

    Attributes:
        tasks: Indexed as in `Task.after`.
        buffers: Indexed as in `Task.reads`.
        sources: The buffers that are there from the beginning.
        kept: The buffers that stay until the end: sources and results.
        num_ports: How many ports there are.
        capacities: What passes each way out of and into a machine, which flows share.
        alike: Which ranks are simulated, and for whom.
    """

    tasks: tuple[SimulatedTask, ...]
    buffers: tuple[Buffer, ...]
    sources: tuple[int, ...]
    kept: frozenset[int]
    num_ports: int
    capacities: tuple[float, ...] = ()
    alike: RankKinds

    @cached_property
    def followers(self) -> Sequence[Sequence[int]]:
        """For each task, the tasks that wait for it."""
        followers: list[list[int]] = [[] for _ in self.tasks]
        for index, task in enumerate(self.tasks):
            for before in task.after:
                followers[before].append(index)
        return followers


def tasks_of(plan: Plan, program: TensorProgram, cluster: Cluster, *, overlap: bool, is_folded: bool = False) -> Tasks:
    """Takes a plan apart.

    Args:
        plan: What is to be done.
        program: What it distributes.
        cluster: Where.
        overlap: Whether a rank computes while it communicates. Channels keep the plan's order either way, and so does each
            rank's computation.
        is_folded: Whether ranks that do the same at the same time have their tasks once.

    Raises:
        PlanError: The cluster has fewer devices than the plan has ranks, or a step reads what no step has made.
    """
    plan.check_program(program)
    if plan.num_ranks > cluster.num_ranks:
        raise PlanError(f"the plan is for {plan.num_ranks} ranks, and cluster {cluster.name} has {cluster.num_ranks} devices")
    sizes = Sizes(plan)
    alike = ranks_alike(plan, cluster, sizes) if is_folded else RankKinds(cluster)
    return _Reader(plan, costs_of(program), cluster, sizes, alike, overlap=overlap).read()


class _Reader:
    """Reads the steps in order."""

    def __init__(
        self, plan: Plan, costs: Mapping[str, NodeCost], cluster: Cluster, sizes: Sizes, alike: RankKinds, *, overlap: bool
    ) -> None:
        self._plan = plan
        self._costs = costs
        self._cluster = cluster.limited_to(plan.network) if plan.network else cluster
        self._overlap = overlap
        self._sizes = sizes
        self._alike = alike
        self._ports = Ports(cluster, plan.network)
        self._ports_of: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._tasks: list[SimulatedTask] = []
        self._buffers: list[Buffer] = []
        self._pieces: dict[PieceKey, tuple[int, tuple[int, ...]]] = {}  # -> its buffer, and the tasks that it is ready after
        self._last: dict[object, int] = {}  # rank or channel -> its latest task
        self._views_s = [0.0] * cluster.num_ranks  # what views take that come before a rank's next task

    def read(self) -> Tasks:
        for tensors in self._plan.sources.values():
            for tensor in tensors:
                for key, num_bytes in self._keys(tensor):
                    self._pieces[key] = (self._buffer(key[1], num_bytes), ())
        sources = tuple(range(len(self._buffers)))
        kernels = {kernel.first: kernel for kernel in self._plan.kernels}
        inside = {index for kernel in self._plan.kernels for index in range(kernel.first, kernel.end)}
        for index, step in enumerate(self._plan.steps):
            if index in inside:
                if index in kernels:
                    self._kernel(kernels[index])
                continue
            match step:
                case Apply():
                    self._apply(index, step)
                case Collective():
                    self._collective(index, step)
                case Transfer():
                    self._transfer(index, step)
        results = [self._piece(key)[0] for tensor in self._plan.results.values() for key, _ in self._keys(tensor)]
        return Tasks(
            tasks=tuple(self._tasks),
            buffers=tuple(self._buffers),
            sources=sources,
            kept=frozenset((*sources, *results)),
            num_ports=self._ports.num_ports,
            capacities=self._ports.capacities,
            alike=self._alike,
        )

    def _apply(self, index: int, step: Apply) -> None:
        cost = self._costs.get(step.node)
        if cost is None:
            raise PlanError(f"step {index} runs {step.node}, and the program has no such node")
        plan, mesh = self._plan, self._plan.meshes[step.mesh]
        inputs = [(tensor, plan.part_of(tensor, step.part)) for tensor in dict.fromkeys(step.inputs)]
        outputs = [(tensor, plan.part_of(tensor, step.part)) for tensor in step.outputs if tensor]
        if cost == FREE and inputs:
            for _, rank in self._alike.positions(mesh):
                self._views_s[rank] += self._cluster.devices[rank].view_s
                piece = self._piece((inputs[0][0], rank, inputs[0][1]))
                self._pieces.update(dict.fromkeys([(tensor, rank, part) for tensor, part in outputs], piece))
            return
        sizes = [self._sizes.bytes_of(tensor)[part] for tensor, part in outputs]
        shares = self._sizes.shares_of(step)
        for position, rank in self._alike.positions(mesh):
            self._compute(
                index,
                rank,
                self._cluster.compute_s(cost, rank, shares[position]),
                [(tensor, rank, part) for tensor, part in inputs],
                [((tensor, rank, part), size[position]) for (tensor, part), size in zip(outputs, sizes, strict=True)],
            )

    def _collective(self, index: int, step: Collective) -> None:
        mesh = self._plan.mesh_of(step.source)
        if mesh.axes[mesh.axis_index(step.axis)].is_time:
            self._combine_parts(index, step, mesh)
            return
        # without a part, the step is for all of them
        is_for_all = step.part is None and self._plan.varies_in_time(step.source)
        for part in range(mesh.num_parts) if is_for_all else [self._plan.part_of(step.source, step.part)]:
            if step.kind in (CollectiveKind.SLICE, CollectiveKind.MASK):
                self._cut(index, step, mesh, part)
                continue
            for group in self._alike.groups(mesh, step.axis):
                self._exchange(index, step, mesh, part, group)

    def _cut(self, index: int, step: Collective, mesh: Mesh, part: int) -> None:
        """What each rank does by itself with what it holds whole."""
        after = self._sizes.bytes_of(step.target)[part]
        for position, rank in self._alike.positions(mesh):
            self._compute(index, rank, 0.0, [(step.source, rank, part)], [((step.target, rank, part), after[position])])

    def _exchange(self, index: int, step: Collective, mesh: Mesh, part: int, group: RankGroup) -> None:
        before, after = self._sizes.bytes_of(step.source)[part], self._sizes.bytes_of(step.target)[part]
        ranks = tuple(mesh.ranks[position] for position in group.positions)
        sizes_after = [after[position] for position in group.positions]
        pieces = _pieces(step.kind, [before[position] for position in group.positions], sizes_after)
        duration_s = self._cluster.collective_s(step.kind, step.algorithm, ranks, pieces)
        size_of = dict(zip((self._alike.first[rank] for rank in ranks), sizes_after, strict=True))
        reads: list[PieceKey] = [(step.source, rank, part) for rank in size_of]
        makes = [((step.target, rank, part), size) for rank, size in size_of.items()]
        self._communicate(index, ranks, duration_s, (reads, makes), others=group.others)

    def _kernel(self, kernel: Kernel) -> None:
        """One task for each line of ranks: what is communicated and what is computed hide each other, and of what is made in
        between only that of one chunk is ever there.
        """
        parts, plan = parts_of(self._plan, kernel), self._plan
        mesh, kept = plan.mesh_of(parts.scatter.source), parts.kept(plan)
        for positions in groups_along(mesh, parts.scatter.axis):
            ranks = tuple(mesh.ranks[position] for position in positions)
            chunk = ChunkTimes(
                product_s=max(self._products_s(parts, position) for position in positions) / kernel.num_chunks,
                scatter_s=self._chunk_s(parts.scatter, positions, kernel.num_chunks),
                compute_s=max(self._kernel_compute_s(parts, kept, position) for position in positions) / kernel.num_chunks,
                gather_s=sum(self._chunk_s(step, positions, kernel.num_chunks) for step in parts.gathers),
            )
            reads = [(name, rank, 0) for name in parts.reads for rank in ranks]
            makes = [((name, mesh.ranks[p], 0), self._sizes.bytes_of(name)[0][p]) for name in kept for p in positions]
            term = max(self._sizes.bytes_of(parts.scatter.target)[0]) * NUM_TERMS * bool(parts.products)
            for position in positions:
                live = parts.live_bytes(plan, lambda name, position=position: self._sizes.bytes_of(name)[0][position])
                makes.append(((f"kernel {kernel.first}", mesh.ranks[position], 0), (live + term) // kernel.num_chunks))
            lines: Sequence[object] = [*ranks, ranks] if self._overlap else ranks
            ports, duration_s = self._ports.of(ranks, is_message=False), kernel_s(chunk, kernel.num_chunks, len(ranks))
            self._add(kernel.first, ranks, duration_s, lines, ports, (reads, makes), is_communication=True)

    def _chunk_s(self, step: Collective, positions: Sequence[int], num_chunks: int) -> float:
        """What one chunk of a collective takes."""
        before, after = self._sizes.bytes_of(step.source)[0], self._sizes.bytes_of(step.target)[0]
        pieces = _pieces(step.kind, [before[p] for p in positions], [after[p] for p in positions])
        ranks = tuple(self._plan.mesh_of(step.source).ranks[position] for position in positions)
        return self._cluster.collective_s(step.kind, step.algorithm, ranks, [-(-size // num_chunks) for size in pieces])

    def _products_s(self, parts: Parts, position: int) -> float:
        """What one rank needs to make its terms, of all slices."""
        rank = self._plan.mesh_of(parts.scatter.source).ranks[position]
        return sum(
            self._cluster.compute_s(self._costs[step.node], rank, self._sizes.shares_of(step)[position])
            for step in parts.products
        )

    def _kernel_compute_s(self, parts: Parts, kept: Sequence[str], position: int) -> float:
        """What one rank's slices take: all arithmetic, and each tensor from outside read once, each that is kept written once."""
        rank, num_flops = self._plan.mesh_of(parts.scatter.source).ranks[position], 0.0
        for step in parts.applies:
            num_flops += self._costs[step.node].flops * self._sizes.shares_of(step)[position]
        gathered = {step.target for step in parts.gathers}
        inputs = dict.fromkeys(name for step in parts.applies for name in step.inputs)
        read = sum(self._sizes.bytes_of(name)[0][position] for name in inputs if name in parts.reads)
        written = sum(self._sizes.bytes_of(name)[0][position] for name in kept if name not in gathered)
        return self._cluster.compute_s(NodeCost(flops=num_flops, read_bytes=read, written_bytes=written), rank)

    def _combine_parts(self, index: int, step: Collective, mesh: Mesh) -> None:
        """What each rank does by itself with the pieces of all its parts, or to cut one into parts."""
        before, after = self._sizes.bytes_of(step.source), self._sizes.bytes_of(step.target)
        width = type_sizes[self._plan.values[self._plan.tensors[step.source].value].dtype]
        for position, rank in self._alike.positions(mesh):
            read, written = (sum(sizes[position] for sizes in parts) for parts in (before, after))
            is_sum = step.kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER)
            cost = NodeCost(flops=(read - before[0][position]) / width if is_sum else 0.0, read_bytes=read, written_bytes=written)
            is_free = step.kind in (CollectiveKind.SLICE, CollectiveKind.MASK)
            self._compute(
                index,
                rank,
                0.0 if is_free else self._cluster.compute_s(cost, rank),
                [(step.source, rank, part) for part in range(len(before))],
                [((step.target, rank, part), sizes[position]) for part, sizes in enumerate(after)],
            )

    def _transfer(self, index: int, step: Transfer) -> None:
        """Each rank gets what it lacks of its piece: one task for each message, and one that puts the piece together."""
        mesh, seen = self._plan.mesh_of(step.target), set[PieceKey]()
        sizes, layout = self._sizes.bytes_of(step.target), self._plan.tensors[step.target].layout
        time = mesh.time_axis if step.part is not None else None  # one part's term of a sum over time stays that part's term
        for coordinate in mesh.coordinates:
            key = _key(self._plan, step.target, mesh, coordinate)
            if key in seen or (step.part is not None and key[2] != step.part and len(sizes) > 1):
                continue
            seen.add(key)
            make = (key, sizes[key[2]][mesh.ranks.index(key[1])])
            if any(isinstance(p, Partial) and coordinate[axis] and axis != time for axis, p in enumerate(layout)):
                self._compute(index, key[1], 0.0, [], [make])
                continue
            self._receive(index, step, coordinate, make)

    def _receive(self, index: int, step: Transfer, coordinate: Coordinate, make: tuple[PieceKey, int]) -> None:
        rank, local, arriving = make[0][1], list[PieceKey](), list[int]()
        kinds = {edge.pair: edge.kind for edge in step.edges}
        for key, num_bytes in self._senders(step, coordinate, rank):
            if key[1] == rank:
                local.append(key)
                continue
            ranks = (key[1], rank)
            duration_s = self._cluster.message_s(*ranks, num_bytes, kinds.get(ranks, ChannelKind.GLOO))
            arriving.append(self._communicate(index, ranks, duration_s, ([key], []), is_message=True))
        if local or not arriving:
            self._compute(index, rank, 0.0, local, [make], arriving)
            return
        # the last message fills the piece
        task = self._tasks[arriving[-1]]
        buffer = self._buffer(rank, make[1])
        self._tasks[arriving[-1]] = task._replace(makes=(buffer,))
        self._pieces[make[0]] = (buffer, tuple(arriving))

    def _senders(self, step: Transfer, coordinate: Coordinate, rank: int) -> Iterable[tuple[PieceKey, int]]:
        """The pieces from which a region of the value is put together, and the bytes of each that are needed.

        Of replicas, the rank's own is taken, else one on its machine, else the first.
        """
        plan, mesh = self._plan, self._plan.mesh_of(step.source)
        layout, value = plan.tensors[step.source].layout, plan.values[plan.tensors[step.source].value]
        region = plan.region(step.target, coordinate)
        replicas: dict[Coordinate, list[Coordinate]] = {}
        for coordinate_of_source in mesh.coordinates:
            if step.part is None or mesh.time_axis is None or coordinate_of_source[mesh.time_axis] == step.part:
                original = tuple(
                    0 if isinstance(p, Replicate) else at for p, at in zip(layout, coordinate_of_source, strict=True)
                )
                replicas.setdefault(original, []).append(coordinate_of_source)
        machine = self._cluster.devices[rank].machine
        for alike in replicas.values():
            common = overlap(region, plan.region(step.source, alike[0]))
            if common is None:
                continue
            keys = [_key(plan, step.source, mesh, coordinate_of_source) for coordinate_of_source in alike]
            nearest = min(keys, key=lambda key: (key[1] != rank, self._cluster.devices[key[1]].machine != machine))
            yield nearest, prod(stop - start for start, stop in common) * type_sizes[value.dtype]

    def _compute(
        self,
        step: int,
        rank: int,
        duration_s: float,
        reads: Sequence[PieceKey],
        makes: Sequence[tuple[PieceKey, int]],
        arriving: Sequence[int] = (),
    ) -> None:
        if duration_s:
            duration_s, self._views_s[rank] = duration_s + self._views_s[rank], 0.0
        # what takes no time needs no turn: if it waits for others, it must not hold up what the rank could compute meanwhile
        line = [rank] if duration_s or not reads or not self._overlap else []
        self._add(step, (rank,), duration_s, line, (), (reads, makes), arriving, others=self._alike.others[rank])

    def _communicate(
        self,
        step: int,
        ranks: tuple[int, ...],
        duration_s: float,
        pieces: tuple[Sequence[PieceKey], Sequence[tuple[PieceKey, int]]],
        *,
        is_message: bool = False,
        others: tuple[tuple[int, ...], ...] = (),
    ) -> int:
        lines: Sequence[object] = [self._alike.channel(ranks)] if self._overlap else self._alike.firsts(ranks)
        ports = self._ports_for(ranks, is_message)
        index = self._add(step, ranks, duration_s, lines, ports, pieces, is_communication=True, others=others)
        if (flow := self._ports.flow(ranks, is_message=is_message)) is not None:
            self._tasks[index] = self._tasks[index]._replace(flow=flow)
        return index

    def _ports_for(self, ranks: tuple[int, ...], is_message: bool) -> tuple[int, ...]:
        """The ports that communication needs, of the machines that are simulated."""
        if not self._alike.is_folded:
            return self._ports.of(ranks, is_message=is_message)
        if self._alike.is_one_channel:
            return ()
        if ranks not in self._ports_of:
            first = self._alike.first_machines
            ports = self._ports.of(ranks, is_message=is_message)
            self._ports_of[ranks] = tuple(dict.fromkeys(2 * first[port // 2] + port % 2 for port in ports))
        return self._ports_of[ranks]

    def _add(
        self,
        step: int,
        ranks: tuple[int, ...],
        duration_s: float,
        lines: Sequence[object],
        ports: tuple[int, ...],
        pieces: tuple[Sequence[PieceKey], Sequence[tuple[PieceKey, int]]],
        arriving: Sequence[int] = (),
        *,
        is_communication: bool = False,
        others: tuple[tuple[int, ...], ...] = (),
    ) -> int:
        """Adds a task that waits for what it reads, and for the task before it in each line that it stands in."""
        index, last = len(self._tasks), self._last
        after = dict.fromkeys(arriving)
        reads: dict[int, None] = {}
        for key in pieces[0]:
            buffer, ready_after = self._piece(key)
            reads[buffer] = None
            for task in ready_after:
                after[task] = None
        for line in lines:
            if line in last:
                after[last[line]] = None
            last[line] = index
        makes: list[int] = []
        ready = (index,)
        for key, num_bytes in pieces[1]:
            makes.append(self._buffer(key[1], num_bytes))
            self._pieces[key] = (makes[-1], ready)
        self._tasks.append(
            SimulatedTask(
                step, ranks, duration_s, is_communication, ports, tuple(after), tuple(reads), tuple(makes), None, others
            )
        )
        return index

    def _buffer(self, rank: int, num_bytes: int) -> int:
        self._buffers.append(Buffer(rank, num_bytes))
        return len(self._buffers) - 1

    def _piece(self, key: PieceKey) -> tuple[int, tuple[int, ...]]:
        piece = self._pieces.get(key)
        if piece is None:
            tensor, rank, part = key
            raise PlanError(f"rank {rank} needs {tensor}{f', part {part}' if part else ''}, and no step has made it")
        return piece

    def _keys(self, tensor: str) -> Iterable[tuple[PieceKey, int]]:
        positions = self._alike.positions(self._plan.mesh_of(tensor))
        for part, sizes in enumerate(self._sizes.bytes_of(tensor)):
            for position, rank in positions:
                yield (tensor, rank, part), sizes[position]


def _pieces(kind: CollectiveKind, before: Sequence[int], after: Sequence[int]) -> Sequence[int]:
    """The bytes that the cost of a collective depends on, as `Cluster.collective_s` wants them."""
    match kind:
        case CollectiveKind.REDUCE_SCATTER:
            return after
        case CollectiveKind.ALL_TO_ALL:
            return [max(pair) for pair in zip(before, after, strict=True)]
        case _:
            return before


def _key(plan: Plan, tensor: str, mesh: Mesh, coordinate: Coordinate) -> PieceKey:
    time = mesh.time_axis
    return tensor, mesh.rank_at(coordinate), plan.part_of(tensor, None if time is None else coordinate[time])
