"""What each operation of a program costs on one device: arithmetic, and bytes that it reads and writes.

A multiply-add counts as 2 flops. Clusters whose speeds were measured in another convention say so
(`Cluster.flops_per_multiply_add`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from dyorc.planner.program.graph import Node, TensorProgram, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCost:
    """What one node costs if one device runs all of it.

    Attributes:
        flops: Arithmetic operations.
        read_bytes: Bytes of its inputs.
        written_bytes: Bytes of its outputs.
    """

    flops: float
    read_bytes: int
    written_bytes: int

    @property
    def num_bytes(self) -> int:
        """Bytes that it reads and writes."""
        return self.read_bytes + self.written_bytes


FREE = NodeCost(flops=0.0, read_bytes=0, written_bytes=0)
"""Of operations that only change how a tensor is looked at, and of constants."""

_FREE = {"view", "full", "permute", "expand", "slice", "select", "split_with_sizes"}
VIEWS = frozenset(_FREE - {"full"})
"""Operations that only change how a tensor is looked at."""
_COPIES = {"cat", "clone", "constant_pad_nd", "flip", "roll", "_to_copy", "copy", "where"}
"""They move bytes and compute nothing."""
_PICKS = {"embedding", "gather", "index_select", "index"}
"""They read as much of their first input as they write."""
_FLOPS_PER_ELEMENT = {"_softmax": 5, "_log_softmax": 15, "native_layer_norm": 10, "philox_uniform": 25}
"""Source: HiDup (SoCC'22), the factors of its cost model; of random numbers, ten rounds of ten operations make four."""


@lru_cache(maxsize=8)
def costs_of(program: TensorProgram) -> Mapping[str, NodeCost]:
    """Returns what each node costs on one device, by the node's name."""
    return {node.name: cost_of(node, program.values) for node in program.nodes}


def cost_of(node: Node, values: Mapping[str, Value]) -> NodeCost:
    """Returns what one node costs on one device."""
    name = node.op.split(".")[1]
    if name in _FREE:
        return FREE
    written = sum(values[output].num_bytes for output in node.outputs if output)
    if name in _PICKS:
        indices = sum(values[source].num_bytes for source in node.inputs[1:])
        return NodeCost(flops=0.0, read_bytes=written + indices, written_bytes=written)
    read = sum(values[source].num_bytes for source in dict.fromkeys(node.inputs))
    return NodeCost(flops=_flops(name, node, values), read_bytes=read, written_bytes=written)


def _flops(name: str, node: Node, values: Mapping[str, Value]) -> float:
    if name in _COPIES:
        return 0.0
    shapes = [values[source].shape for source in node.inputs]
    match name:
        case "mm" | "bmm":
            return 2.0 * prod(shapes[0]) * shapes[1][-1]
        case "convolution":
            is_transposed = node.arguments[6] is True
            return _convolution(shapes[0] if is_transposed else values[node.outputs[0]].shape, shapes[1])
        case "convolution_backward":
            is_transposed = node.arguments[7] is True
            each = _convolution(shapes[1] if is_transposed else shapes[0], shapes[2])
            bias = prod(shapes[0]) if len(node.outputs) > 2 and node.outputs[2] else 0
            return each * sum(bool(output) for output in node.outputs[:2]) + bias
        case _:
            largest = max([prod(values[v].shape) for v in (*node.inputs, *node.outputs) if v], default=0)
            return float(_FLOPS_PER_ELEMENT.get(name, 1) * largest)


def _convolution(many: tuple[int, ...], weight: tuple[int, ...]) -> float:
    """Each element of the output, or of a transposed one's input, meets one filter: the weight without its first dimension."""
    return 2.0 * prod(many) * prod(weight[1:])
