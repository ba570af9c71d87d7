"""Makes a plan of placements that another planner has chosen for its own graph.

That planner traces the model by itself: its graph has the same products in the same order, but other operations around them,
other views, and transposes where ours has none. So nodes are aligned by what they compute and how much, and each node that has a
counterpart may only take strategies that read its inputs as the counterpart does. All other nodes follow their inputs, as in the
plans that people write.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import permutations
from math import prod
from typing import Any

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import MeshAxis, Plan
from dyorc.planner.planners.baselines.assemble import build_plan, in_order, one_stage
from dyorc.planner.planners.baselines.follow import Choices, choices_of, follow
from dyorc.planner.program import PARTIAL, REPLICATE, Node, Placement, Shard, Strategy, TensorProgram
from dyorc.planner.program.costs import FREE, costs_of
from dyorc.planner.program.graph import Phase

_PLACEMENT = re.compile(r"S\((\d+)\)|R|P\(\w+\)")
_PRODUCTS = {"mm", "bmm", "einsum"}


@dataclass(frozen=True, slots=True)
class PeerTensor:
    """A tensor of the other planner's graph.

    Attributes:
        shape: Its whole shape.
        placements: One for each axis of its mesh; empty if it has none.
    """

    shape: tuple[int, ...]
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class PeerNode:
    """A node of the other planner's graph.

    Attributes:
        op: ATen's name.
        is_backward: Whether it belongs to the backward pass.
        shape: Of its output, or of the first one.
        inputs: As it reads them.
    """

    op: str
    is_backward: bool
    shape: tuple[int, ...]
    inputs: tuple[PeerTensor, ...]


@dataclass(frozen=True, slots=True)
class PeerPlacements:
    """All that the other planner has chosen.

    Attributes:
        mesh: The extents of its mesh.
        sources: How parameters, buffers and inputs lie, by our names.
        nodes: Its graph, in order.
    """

    mesh: tuple[int, ...]
    sources: Mapping[str, PeerTensor]
    nodes: tuple[PeerNode, ...]


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of it.

    Attributes:
        plan: The plan.
        num_products: How many matrix products the program has.
        num_products_alike: How many of them read their inputs as their counterparts do.
        num_alike: How many nodes of any kind do.
        num_nodes: How many nodes compute anything.
        not_expressed: Nodes that have a counterpart, and no strategy that reads its inputs as the counterpart does.
    """

    plan: Plan
    num_products: int
    num_products_alike: int
    num_alike: int
    num_nodes: int
    not_expressed: tuple[str, ...]


def read_placements(answer: Mapping[str, Any]) -> PeerPlacements:
    """Reads what `ask_autoparallel` wrote."""

    def tensor(entry: Mapping[str, Any]) -> PeerTensor:
        return PeerTensor(tuple(entry["shape"]), _placements(entry["placement"]))

    nodes = tuple(
        PeerNode(each["op"], each["is_backward"], tuple(each["shape"]), tuple(map(tensor, each["inputs"])))
        for each in answer["nodes"]
    )
    return PeerPlacements(tuple(answer["mesh"]), {each["name"]: tensor(each) for each in answer["sources"]}, nodes)


def _placements(text: str) -> tuple[Placement, ...]:
    """Reads DTensor's short form: `S(0)R` on a mesh with two axes."""
    return tuple(
        Shard(int(match[1])) if match[1] is not None else REPLICATE if match[0] == "R" else PARTIAL
        for match in _PLACEMENT.finditer(text)
    )


def plan_of_placements(program: TensorProgram, cluster: Cluster, placements: PeerPlacements, planner: str) -> Imported:
    """Returns the plan that places what it can as the other planner does.

    Raises:
        PlanError: The mesh has another number of ranks than the cluster.
    """
    if prod(placements.mesh) != cluster.num_ranks:
        raise PlanError(
            f"{planner} planned for {prod(placements.mesh)} ranks, and cluster {cluster.name} has {cluster.num_ranks}"
        )
    choices = choices_of(program)
    counterparts = aligned(program, placements.nodes)
    axes, alike, refused = [], set(counterparts), set[str]()
    for index, size in enumerate(placements.mesh):
        allowed = {name: _allowed(choices, program.node_named[name], peer, index) for name, peer in counterparts.items()}
        refused |= {name for name, strategies in allowed.items() if not strategies}
        restricted = replace(choices, strategies={**choices.strategies, **{n: s for n, s in allowed.items() if s}})
        sources = {name: _source(choices, name, tensor, index, size) for name, tensor in placements.sources.items()}
        axes.append(follow(restricted, MeshAxis(name=f"peer{index}", size=size), sources))
    alike -= refused
    products = {node.name for node in program.nodes if _kind(node.op) == "product"}
    return Imported(
        plan=build_plan(choices, axes, one_stage(choices, cluster.num_ranks), in_order(choices), planner, cluster),
        num_products=len(products),
        num_products_alike=len(products & alike),
        num_alike=len(alike),
        num_nodes=len(_computing(program)),
        not_expressed=tuple(sorted(refused)),
    )


def aligned(program: TensorProgram, nodes: Sequence[PeerNode]) -> dict[str, PeerNode]:
    """Returns the counterpart of each node that has one, by the node's name."""
    pairs: dict[str, PeerNode] = {}
    for is_backward in (False, True):
        ours = [node for node in _computing(program) if (node.phase is Phase.BACKWARD) == is_backward]
        theirs = [node for node in nodes if node.is_backward == is_backward]
        keys = [_key(node.op, *_shapes(program, node)) for node in ours]
        known = set(keys)
        theirs = [node for node in theirs if _peer_key(node) in known]
        matcher = SequenceMatcher(None, keys, [_peer_key(node) for node in theirs], autojunk=False)
        for start, other, size in matcher.get_matching_blocks():
            pairs |= {ours[start + i].name: theirs[other + i] for i in range(size)}
    return pairs


def _computing(program: TensorProgram) -> list[Node]:
    costs = costs_of(program)
    return [node for node in program.nodes if costs[node.name] != FREE and node.phase is not Phase.UPDATE]


def _shapes(program: TensorProgram, node: Node) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    output = next(name for name in node.outputs if name)
    return program.values[output].shape, [program.values[name].shape for name in node.inputs]


def _peer_key(node: PeerNode) -> tuple[str, int, tuple[int, ...]]:
    return _key(node.op, node.shape, [tensor.shape for tensor in node.inputs])


def _key(op: str, output: Sequence[int], inputs: Sequence[Sequence[int]]) -> tuple[str, int, tuple[int, ...]]:
    """What a node computes and how much, whatever the views and transposes around it."""
    return _kind(op), prod(output), tuple(sorted(map(prod, inputs)))


def _kind(op: str) -> str:
    name = op.split(".")[1] if "." in op else op
    return "product" if name in _PRODUCTS else name


def _allowed(choices: Choices, node: Node, peer: PeerNode, axis: int) -> tuple[Strategy, ...]:
    """The strategies of a node that read each input as its counterpart does, as far as that can be said in our shapes."""
    wanted = list(_wanted(choices.program, node, peer, axis))
    return tuple(
        strategy
        for strategy in choices.strategies[node.name]
        if all(want is None or want == placement for want, placement in zip(wanted, strategy.inputs, strict=True))
    )


def _wanted(program: TensorProgram, node: Node, peer: PeerNode, axis: int) -> Iterator[Placement | None]:
    """Pairs inputs by how many elements they have, those of one size in order."""
    left = list(peer.inputs)
    for name in node.inputs:
        shape = program.values[name].shape
        tensor = next((each for each in left if prod(each.shape) == prod(shape)), None)
        if tensor is None or axis >= len(tensor.placements):
            yield None
        else:
            left.remove(tensor)
            yield translated(tensor.placements[axis], tensor.shape, shape)


def _source(choices: Choices, name: str, tensor: PeerTensor, axis: int, size: int) -> Placement:
    """How a source lies; whole if it cannot be cut so here."""
    placement = tensor.placements[axis] if axis < len(tensor.placements) else REPLICATE
    can_cut = isinstance(placement, Shard) and choices.axes.extent_of(name, placement.dim) >= size
    return placement if can_cut else REPLICATE


def translated(placement: Placement, before: Sequence[int], after: Sequence[int]) -> Placement | None:
    """Says a placement of one shape in another, which is a view of the first or of its transpose.

    Returns:
        The placement; None if it cuts what is not the outer part of any dimension there.
    """
    if not isinstance(placement, Shard):
        return placement
    orders = permutations(range(len(after))) if len(after) <= 3 else [tuple(range(len(after)))]
    for order in orders:
        groups = _groups(before, [after[dim] for dim in order])
        if groups is not None:
            inner = [(dims[0], order[other[0]]) for dims, other in groups]
            return next((Shard(there) for here, there in inner if here == placement.dim), None)
    return None


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]] | None:
    """Pairs runs of dimensions with equal products, of which one is a single dimension; None if there is another kind of run."""
    left = [dim for dim, extent in enumerate(before) if extent != 1]
    right = [dim for dim, extent in enumerate(after) if extent != 1]
    groups: list[tuple[list[int], list[int]]] = []
    while left and right:
        here_dims, other = [left.pop(0)], [right.pop(0)]
        while (here := prod(before[dim] for dim in here_dims)) != (there := prod(after[dim] for dim in other)):
            short, rest = (here_dims, left) if here < there else (other, right)
            if not rest:
                return None
            short.append(rest.pop(0))
        if len(here_dims) > 1 and len(other) > 1:
            return None
        groups.append((here_dims, other))
    return None if left or right else groups
