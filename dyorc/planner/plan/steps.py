"""What the ranks of a plan do, step by step.

All ranks go through the same list of steps in the same order, each taking part in those whose mesh it belongs to. So no rank
waits for one that waits for it: ranks wait only for ranks behind them in the list, so the last one never waits.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from dyorc.errors import PlanError
from dyorc.planner.program import Argument, Partial, Placement, Replicate, Shard
from dyorc.planner.program.graph import inputs_of


class CollectiveKind(StrEnum):
    """How the placement along one axis changes. The first four communicate; along time, nothing does."""

    ALL_REDUCE = "all_reduce"  # Partial -> Replicate
    ALL_GATHER = "all_gather"  # Shard -> Replicate
    REDUCE_SCATTER = "reduce_scatter"  # Partial -> Shard
    ALL_TO_ALL = "all_to_all"  # Shard -> Shard of another dimension, or of other sizes
    SLICE = "slice"  # Replicate -> Shard: each keeps its part
    MASK = "mask"  # Replicate -> Partial: the first keeps it, the others hold zeros


_KINDS: dict[tuple[type, type], CollectiveKind] = {
    (Partial, Replicate): CollectiveKind.ALL_REDUCE,
    (Shard, Replicate): CollectiveKind.ALL_GATHER,
    (Partial, Shard): CollectiveKind.REDUCE_SCATTER,
    (Shard, Shard): CollectiveKind.ALL_TO_ALL,
    (Replicate, Shard): CollectiveKind.SLICE,
    (Replicate, Partial): CollectiveKind.MASK,
}


def kind_between(before: Placement, after: Placement) -> CollectiveKind:
    """Returns what changes one placement into another.

    Raises:
        PlanError: Nothing does: a shard is no sum.
    """
    kind = _KINDS.get((type(before), type(after)))
    if kind is None:
        raise PlanError(f"no collective changes {before} into {after}")
    return kind


class Algorithm(StrEnum):
    """How a collective moves the bytes."""

    PADDED = "padded"  # every shard is filled up to the largest, and one collective moves all
    GROUPED = "grouped"  # one broadcast or reduction for each shard, of that shard's size
    RING = "ring"  # our own ring over sends and receives, of each shard's own size


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """Each rank of a mesh computes its piece of one operation.

    Attributes:
        node: The program's node that this is a piece of.
        op: The operation, by ATen's name; the node's own in a correct plan.
        arguments: As in a node, with the ids of placed tensors in place of values.
        keywords: The same, by name.
        outputs: The placed tensors that it makes; the id is empty if no step reads the output.
        mesh: Where it runs.
        part: Which part of the work along the axis of time; None if it is done once.
        inputs: The placed tensors that it reads, in the order of its arguments.
    """

    node: str
    op: str
    arguments: tuple[Argument, ...]
    keywords: tuple[tuple[str, Argument], ...] = ()
    outputs: tuple[str, ...]
    mesh: str
    part: int | None = None
    inputs: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", inputs_of(self.arguments, self.keywords))

    @property
    def key(self) -> tuple[str, str, tuple[str, ...]]:
        """What tells steps of a correct plan apart, all parts of one being one; costs less than comparing all they say."""
        return self.node, self.mesh, self.outputs

    def is_part_like(self, other: "Apply") -> bool:
        """Whether both say the same, of one part of the work or of two."""
        return (self.key, self.op, self.arguments, self.keywords) == (other.key, other.op, other.arguments, other.keywords)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """The placement of a tensor changes along one axis of its mesh.

    Attributes:
        kind: What is done.
        source: The placed tensor that is read.
        target: The placed tensor that is made, of the same value on the same mesh.
        axis: The axis's name. Along an axis of time the pieces of all parts are combined, on each rank by itself.
        part: Which part of the work; None if the axis is that of time, or if it is done once.
        algorithm: How the bytes are moved.
    """

    kind: CollectiveKind
    source: str
    target: str
    axis: str
    part: int | None = None
    algorithm: Algorithm = Algorithm.PADDED

    @property
    def inputs(self) -> tuple[str, ...]:
        """The placed tensor that it reads."""
        return (self.source,)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The placed tensor that it makes."""
        return (self.target,)


class ChannelKind(StrEnum):
    """How a message gets from one rank to another."""

    GLOO = "gloo"  # torch's own sends and receives
    STATIC = "static"  # shared memory that the receiver sets aside once: the sender writes it in place
    DYNAMIC = "dynamic"  # shared memory that the sender takes when there is a message, whose shape goes ahead
    GRPC = "grpc"  # the receiver asks the sender for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """How what a transfer moves from one rank to another gets there.

    Attributes:
        source: The rank that sends.
        target: The rank that receives.
        kind: How.
        slot: Of a static one: which of the places that the target has for what the source sends. Several transfers may use one.
    """

    source: int
    target: int
    kind: ChannelKind
    slot: int = 0

    @property
    def pair(self) -> tuple[int, int]:
        """The rank that sends and the one that receives."""
        return self.source, self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A tensor goes from one mesh to another: each rank gets what it lacks of its piece from ranks that hold it.

    Attributes:
        source: The placed tensor that is read.
        target: The placed tensor that is made, of the same value on another mesh.
        part: Which part of the work; None if it is done once. Both meshes have the same number of parts then.
        edges: How its messages get from rank to rank; between ranks that are not named, by gloo, or NCCL on GPUs.
    """

    source: str
    target: str
    part: int | None = None
    edges: tuple[Edge, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The placed tensor that it reads."""
        return (self.source,)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The placed tensor that it makes."""
        return (self.target,)


Step: TypeAlias = Apply | Collective | Transfer
