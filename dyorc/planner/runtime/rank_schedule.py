"""What one rank does to run a plan: the plan's steps as instructions of this rank, with names and regions of this rank's pieces.

All is decided here, once for each plan, without torch and without other ranks; `schedule_executor.py` carries it out.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from dyorc.planner.plan import Algorithm, Apply, Collective, CollectiveKind, Coordinate, Kernel, Plan, Region, Step, Transfer
from dyorc.planner.plan.kernels import parts_of
from dyorc.planner.program import Argument, Shard
from dyorc.planner.program.costs import VIEWS
from dyorc.planner.runtime.message_lanes import Lanes, MessageLane, Pair
from dyorc.planner.runtime.region_moves import Key, RegionMove, key_at, moves_between, pieces_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """Compute this rank's piece of an operation.

    Attributes:
        step: The number of the plan's step.
        op: ATen's name.
        arguments: With the ids of placed tensors.
        keywords: The same, by name.
        inputs: For each of those ids, the piece.
        outputs: The pieces that it makes; None for an unread output.
        region: Of the first that is read.
    """

    step: int
    op: str
    arguments: tuple[Argument, ...]
    keywords: tuple[tuple[str, Argument], ...]
    inputs: Mapping[str, Key]
    outputs: tuple[Key | None, ...]
    region: Region

    @property
    def reads(self) -> tuple[Key, ...]:
        """The pieces that it reads."""
        return tuple(self.inputs.values())

    @property
    def makes(self) -> tuple[Key, ...]:
        """The pieces that it makes."""
        return tuple(key for key in self.outputs if key)


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinePieces:
    """Change a placement without other ranks: along time, by cutting, or by filling with zeros.

    Attributes:
        step: The number of the plan's step.
        kind: What is done.
        sources: The pieces along the axis; only this rank's own one where the axis is of space.
        dim: Along which shards are put together, if they are.
        targets: For each piece that is made: where it lies in what the sources give together, and whether it holds zeros.
    """

    step: int
    kind: CollectiveKind
    sources: tuple[Key, ...]
    dim: int
    targets: tuple[tuple[Key, tuple[slice, ...], bool], ...]

    @property
    def reads(self) -> tuple[Key, ...]:
        """The pieces that it reads."""
        return self.sources

    @property
    def makes(self) -> tuple[Key, ...]:
        """The pieces that it makes."""
        return tuple(key for key, _, _ in self.targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveExchange:
    """Take part in a collective of several ranks.

    Attributes:
        step: The number of the plan's step.
        kind: What is done.
        algorithm: How the bytes are moved.
        ranks: Who takes part, in the order of the axis.
        index: Which of them this rank is.
        before: The region that each holds.
        after: The region that each wants.
        source: This rank's piece.
        target: What it makes of it.
    """

    step: int
    kind: CollectiveKind
    algorithm: Algorithm
    ranks: tuple[int, ...]
    index: int
    before: tuple[Region, ...]
    after: tuple[Region, ...]
    source: Key
    target: Key

    @property
    def reads(self) -> tuple[Key, ...]:
        """The piece that it reads."""
        return (self.source,)

    @property
    def makes(self) -> tuple[Key, ...]:
        """The piece that it makes."""
        return (self.target,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocate:
    """Send regions of pieces to ranks that need them, and assemble pieces from the arriving regions.

    Attributes:
        step: The number of the plan's step.
        value: What is moved.
        targets: What this rank makes, and what each covers.
        moves: The moves that begin or end here, in the order of all ranks.
        is_between_two: Whether one rank sends to one other, in all of the plan's step.
        lanes: Of the messages that do not go through torch.distributed, by the ranks that send and receive.
    """

    step: int
    value: str
    targets: Mapping[Key, Region]
    moves: tuple[RegionMove, ...]
    reads: tuple[Key, ...]
    is_between_two: bool
    lanes: Mapping[Pair, MessageLane]

    @property
    def makes(self) -> tuple[Key, ...]:
        """The pieces that it makes."""
        return tuple(self.targets)

    @property
    def is_local(self) -> bool:
        """Whether nothing is sent."""
        return all(move.source_rank == move.target_rank for move in self.moves)

    @property
    def peer(self) -> tuple[int, int] | None:
        """The rank that sends and the only one that it sends to, if this is all that is moved. Both ranks see the same."""
        pairs = {(move.source_rank, move.target_rank) for move in self.moves}
        return next(iter(pairs)) if self.is_between_two and len(pairs) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """Do a kernel: scatter sums, compute on this rank's slices, gather what that makes, in chunks that follow each other.

    Attributes:
        step: The number of the kernel's first step.
        products: What makes the terms of the sums, slice by slice, if the kernel does that, too.
        order: In which order: places along the axis after this rank's own.
        scatter: The reduce-scatter.
        computes: What runs on the slices.
        gathers: The all-gathers.
        num_chunks: Into how many chunks each slice is cut.
        dims: For each piece that is a slice, the dimension that is cut; other pieces are read whole by each chunk.
        cuts: For each piece of the products that a slice is or needs a part of, the dimension that is cut.
        kept: The slices that are wanted whole.
    """

    step: int
    products: tuple[Compute, ...]
    order: tuple[int, ...]
    scatter: CollectiveExchange
    computes: tuple[Compute, ...]
    gathers: tuple[CollectiveExchange, ...]
    num_chunks: int
    dims: Mapping[Key, int]
    cuts: Mapping[Key, int]
    kept: tuple[Key, ...]

    @property
    def reads(self) -> tuple[Key, ...]:
        """The pieces that it reads."""
        instructions = (*self.products, self.scatter, *self.computes)
        made = {key for instruction in instructions for key in instruction.makes}
        return tuple(dict.fromkeys(key for instruction in instructions for key in instruction.reads if key not in made))

    @property
    def makes(self) -> tuple[Key, ...]:
        """The pieces that it makes."""
        return (*(gather.target for gather in self.gathers), *self.kept)


Instruction: TypeAlias = Compute | CombinePieces | CollectiveExchange | Relocate | Fused


@dataclass(frozen=True, slots=True)
class RankSchedule:
    """One rank's instructions.

    Attributes:
        plan: The plan.
        rank: Whose they are.
        instructions: In order.
        releases: For each instruction, the pieces that nothing reads after it.
    """

    plan: Plan
    rank: int
    instructions: tuple[Instruction, ...]
    releases: tuple[tuple[Key, ...], ...]

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The sets of ranks that this plan's collectives run among: the same for all ranks, in the same order."""
        groups: dict[tuple[int, ...], None] = {}
        for step in self.plan.steps:
            if isinstance(step, Collective):
                mesh = self.plan.mesh_of(step.source)
                axis = mesh.axis_index(step.axis)
                if not mesh.axes[axis].is_time and step.kind not in _LOCAL_KINDS:
                    groups |= {tuple(mesh.rank_at(c) for c in line): None for line in mesh.lines(axis)}
        return tuple(ranks for ranks in groups if len(ranks) > 1)


_LOCAL_KINDS = (CollectiveKind.SLICE, CollectiveKind.MASK)


def schedule_of(
    plan: Plan,
    rank: int,
    *,
    then: Sequence[tuple[str, str]] = (),
    lanes: Lanes | None = None,
) -> RankSchedule:
    """Returns what a rank does.

    Args:
        plan: What is run.
        rank: Whose instructions are wanted.
        then: Pairs of placed tensors of equal shape: after the plan's steps, the first of each pair is brought to where and how
            the second lies. The pieces that are made are named after the pair, by `then_id`.
        lanes: Of each transfer, by the number of its step; None: all goes through torch.distributed.
    """
    kernels = {kernel.first: kernel for kernel in plan.kernels}
    inside = {number for kernel in plan.kernels for number in range(kernel.first, kernel.end)}
    instructions: list[Instruction] = []
    for number, step in enumerate(plan.steps):
        if number in kernels:
            instructions += _kernel_of(plan, rank, kernels[number])
        elif number not in inside:
            instructions += _of_step(plan, rank, number, step, (lanes or {}).get(number, {}))
    for source, target in then:
        instructions += _relocate_of(plan, rank, len(plan.steps), Transfer(source=source, target=target), {}, renamed=source)
    last = {key: at for at, instruction in enumerate(instructions) for key in (*instruction.makes, *instruction.reads)}
    kept = set(plan.results.values())
    releases: list[list[Key]] = [[] for _ in instructions]
    for key, at in last.items():
        if key.tensor not in kept and THEN not in key.tensor:
            releases[at].append(key)
    return RankSchedule(plan, rank, tuple(instructions), tuple(map(tuple, releases)))


def divide_schedule(schedule: RankSchedule, lasting: Collection[Key]) -> tuple[RankSchedule, RankSchedule]:
    """Divides a schedule into what can be done once, and what is done for each batch.

    Done once are views and cuts of pieces that last, and of these again: the transpose of each matrix, for example.

    Args:
        schedule: Of a plan whose sources do not change.
        lasting: The pieces that are the same for each batch.
    """
    once: list[int] = []
    known = set(lasting)
    for number, instruction in enumerate(schedule.instructions):
        if _is_view(instruction) and known.issuperset(instruction.reads):
            once.append(number)
            known.update(instruction.makes)
    done = set(once)
    often = [number for number in range(len(schedule.instructions)) if number not in done]
    instructions = schedule.instructions
    first = replace(schedule, instructions=tuple(instructions[number] for number in once), releases=((),) * len(once))
    releases = tuple(tuple(key for key in schedule.releases[number] if key not in known) for number in often)
    return first, replace(schedule, instructions=tuple(instructions[number] for number in often), releases=releases)


def _is_view(instruction: Instruction) -> bool:
    if isinstance(instruction, Compute):
        return bool(instruction.inputs) and instruction.op.split(".")[1] in VIEWS
    return isinstance(instruction, CombinePieces) and instruction.kind in _LOCAL_KINDS


THEN = " -> "


def then_id(source: str, target: str) -> str:
    """The id under which a placed tensor is held that was brought to where another lies."""
    return f"{source}{THEN}{target}"


def _of_step(
    plan: Plan, rank: int, number: int, step: Step, lanes: Mapping[Pair, MessageLane] = MappingProxyType({})
) -> Iterator[Instruction]:
    match step:
        case Apply():
            if rank in plan.meshes[step.mesh].ranks:
                yield _compute_of(plan, rank, number, step)
        case Collective():
            if rank in plan.mesh_of(step.source).ranks:
                yield from _collectives_of(plan, rank, number, step)
        case Transfer():
            yield from _relocate_of(plan, rank, number, step, lanes)


def _kernel_of(plan: Plan, rank: int, kernel: Kernel) -> Iterator[Instruction]:
    """One instruction for a kernel; on a line of one rank, its steps by themselves."""
    parts, steps = parts_of(plan, kernel), range(kernel.first, kernel.end)
    mesh = plan.mesh_of(parts.scatter.source)
    if rank not in mesh.ranks:
        return
    instructions = [instruction for number in steps for instruction in _of_step(plan, rank, number, plan.steps[number])]
    exchanges = tuple(instruction for instruction in instructions if isinstance(instruction, CollectiveExchange))
    if not exchanges:
        yield from instructions
        return
    axis, overlap = mesh.axis_index(parts.scatter.axis), kernel.overlap
    computes = tuple(instruction for instruction in instructions if isinstance(instruction, Compute))
    names = [*parts.reads, parts.scatter.target, *(name for step in parts.applies for name in step.outputs if name)]
    dims = {Key(n, 0): p.dim for n in names if isinstance(p := plan.tensors[n].layout[axis], Shard)}
    gathered = {step.target for step in parts.gathers}
    yield Fused(
        step=kernel.first,
        products=computes[: len(parts.products)],
        order=overlap.order if overlap else (),
        scatter=exchanges[0],
        computes=computes[len(parts.products) :],
        gathers=exchanges[1:],
        num_chunks=kernel.num_chunks,
        dims=dims,
        cuts={Key(name, 0): dim for name, dim in overlap.cuts.items()} if overlap else {},
        kept=tuple(Key(name, 0) for name in parts.kept(plan) if name not in gathered),
    )


def _compute_of(plan: Plan, rank: int, number: int, step: Apply) -> Compute:
    coordinate = plan.meshes[step.mesh].coordinate_of(rank, step.part)
    first = next(output for output in step.outputs if output)
    return Compute(
        step=number,
        op=step.op,
        arguments=step.arguments,
        keywords=step.keywords,
        inputs={name: Key(name, plan.part_of(name, step.part)) for name in step.inputs},
        outputs=tuple(Key(name, plan.part_of(name, step.part)) if name else None for name in step.outputs),
        region=plan.region(first, coordinate),
    )


def _collectives_of(plan: Plan, rank: int, number: int, step: Collective) -> Iterator[Instruction]:
    mesh = plan.mesh_of(step.source)
    axis, time = mesh.axis_index(step.axis), mesh.time_axis
    seen: set[tuple[Key, ...]] = set()
    for line in mesh.lines(axis):
        if time is not None and time != axis and step.part is not None and line[0][time] != step.part:
            continue
        index = next((i for i, coordinate in enumerate(line) if mesh.rank_at(coordinate) == rank), None)
        if index is None:
            continue
        made = tuple(key_at(plan, step.target, coordinate) for coordinate in line)
        if made in seen:
            continue
        seen.add(made)
        if mesh.axes[axis].is_time:
            yield _combine_of(plan, number, step, line, range(len(line)))
        elif step.kind in _LOCAL_KINDS or len(line) == 1:
            yield _combine_of(plan, number, step, line, [index])
        else:
            yield CollectiveExchange(
                step=number,
                kind=step.kind,
                algorithm=step.algorithm,
                ranks=tuple(mesh.rank_at(coordinate) for coordinate in line),
                index=index,
                before=tuple(plan.region(step.source, coordinate) for coordinate in line),
                after=tuple(plan.region(step.target, coordinate) for coordinate in line),
                source=key_at(plan, step.source, line[index]),
                target=key_at(plan, step.target, line[index]),
            )


def _combine_of(plan: Plan, number: int, step: Collective, line: Sequence[Coordinate], indices: Sequence[int]) -> CombinePieces:
    """`indices`: which pieces of the line this rank makes, and reads."""
    axis = plan.mesh_of(step.source).axis_index(step.axis)
    before, after = plan.tensors[step.source].layout[axis], plan.tensors[step.target].layout[axis]
    targets: dict[Key, tuple[Key, tuple[slice, ...], bool]] = {}
    for index in indices:
        key = key_at(plan, step.target, line[index])
        cut: tuple[slice, ...] = ()
        if isinstance(after, Shard) and after.sizes is not None:
            start = sum(after.sizes[:index])
            cut = (slice(None),) * after.dim + (slice(start, start + after.sizes[index]),)
        targets.setdefault(key, (key, cut, step.kind is CollectiveKind.MASK and index > 0))
    return CombinePieces(
        step=number,
        kind=step.kind,
        sources=tuple(dict.fromkeys(key_at(plan, step.source, line[index]) for index in indices)),
        dim=before.dim if isinstance(before, Shard) else 0,
        targets=tuple(targets.values()),
    )


def _relocate_of(
    plan: Plan, rank: int, number: int, step: Transfer, lanes: Mapping[Pair, MessageLane], renamed: str = ""
) -> Iterator[Relocate]:
    every = list(moves_between(plan, step.source, step.target, step.part))
    moves = [move for move in every if rank in (move.source_rank, move.target_rank)]
    wanted = [piece for piece in pieces_at(plan, step.target, step.part) if piece.rank == rank]

    def name(key: Key) -> Key:
        return Key(then_id(renamed, key.tensor), key.part) if renamed else key

    if moves or wanted:
        yield Relocate(
            step=number,
            value=plan.tensors[step.target].value,
            targets={name(piece.key): piece.region for piece in wanted},
            moves=tuple(replace(move, target=name(move.target)) for move in moves),
            reads=tuple(dict.fromkeys(move.source for move in moves if move.source_rank == rank)),
            is_between_two=len({(move.source_rank, move.target_rank) for move in every}) == 1,
            lanes=lanes,
        )
