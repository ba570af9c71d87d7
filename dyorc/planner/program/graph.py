"""The graph of a training step, or of a model that answers: values, the operations that compute them, and the results.

Everything here is plain data without torch, so that planners, the simulator and the verifier read it alike.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from math import prod
from typing import Any

type_sizes = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}
"""Bytes of one element, by the name of its type."""


class ValueKind(StrEnum):
    """What a value is to the training step."""

    PARAMETER = "parameter"
    BUFFER = "buffer"  # a tensor of the module that is not trained, or a constant
    STATE = "state"  # of the optimizer
    INPUT = "input"  # new with each step
    ACTIVATION = "activation"  # computed by a node


class Phase(StrEnum):
    """The part of the training step that a node belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tensor of the program.

    Attributes:
        name: Unique in the program.
        shape: Its extents on one device.
        dtype: Its type, by torch's name without the prefix: `float32`.
        kind: What it is to the training step.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: ValueKind

    @property
    def num_bytes(self) -> int:
        """The bytes of the whole tensor."""
        return prod(self.shape) * type_sizes[self.dtype]


@dataclass(frozen=True, slots=True)
class ValueRef:
    """A tensor among a node's arguments."""

    name: str

    def __repr__(self) -> str:
        return f"Ref(name={self.name!r})"  # as in the digests of all plans of version 2


@dataclass(frozen=True, slots=True)
class OutputShape:
    """A placeholder for the shape of the node's output: an executor replaces it by the shape of the piece it computes."""


@dataclass(frozen=True, slots=True)
class OutputStart:
    """A placeholder for where the node's output begins in the whole value, a number for each dimension: see `locate`."""


@dataclass(frozen=True, slots=True)
class Dtype:
    """A type of elements among a node's arguments."""

    name: str


Argument = ValueRef | OutputShape | OutputStart | Dtype | int | float | bool | str | None | tuple["Argument", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One operation.

    Attributes:
        name: Unique in the program.
        op: ATen's name with its overload: `aten.mm.default`.
        arguments: What it is applied to, tensors as `ValueRef`s.
        keywords: The same, by name.
        outputs: The values it computes; the name is empty if no node reads the output.
        phase: The part of the step that it belongs to.
        layer: The number of the repeated layer that it belongs to, or None.
        inputs: The values it reads, in the order of its arguments; one that is read twice is there twice. Cached, because
            planners need them all the time.
    """

    name: str
    op: str
    arguments: tuple[Argument, ...]
    keywords: tuple[tuple[str, Argument], ...] = ()
    outputs: tuple[str, ...]
    phase: Phase = Phase.FORWARD
    layer: int | None = None
    inputs: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", inputs_of(self.arguments, self.keywords))


def inputs_of(arguments: tuple[Argument, ...], keywords: tuple[tuple[str, Argument], ...]) -> tuple[str, ...]:
    """Returns the names of the tensors among the arguments of an operation, in order."""
    names: list[str] = []
    _collect(arguments, names)
    for _, value in keywords:
        _collect((value,), names)
    return tuple(names)


def _collect(arguments: tuple[Argument, ...], names: list[str]) -> None:
    for argument in arguments:
        if isinstance(argument, ValueRef):
            names.append(argument.name)
        elif isinstance(argument, tuple):
            _collect(argument, names)


def rename_values(argument: Argument, names: Mapping[str, str]) -> Argument:
    """Returns the argument with other names for its tensors; names that are not in the mapping stay."""
    if isinstance(argument, ValueRef):
        return ValueRef(names.get(argument.name, argument.name))
    if isinstance(argument, tuple):
        return tuple(rename_values(part, names) for part in argument)
    return argument


def locate(arguments: tuple[Argument, ...], start: Sequence[int]) -> tuple[Argument, ...]:
    """Returns the arguments of an operation for the piece of its output that begins at `start` of the whole."""
    return (
        tuple(tuple(start) if isinstance(a, OutputStart) else a for a in arguments) if OutputStart() in arguments else arguments
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class TensorProgram:
    """What one device computes: a training step, or a model's answers to a batch.

    Two are compared by identity, so that results for one can be cached; see `digest`.

    Attributes:
        name: For people.
        values: Every tensor, by name.
        nodes: The operations, in an order in which they can run.
        inputs: Values that are new with each step, in the order of the module's arguments.
        loss: The value that is minimized, a scalar; empty if nothing is trained.
        gradients: For each parameter that is trained, the value that is its gradient.
        updates: For each parameter, state or buffer that the step changes, the value that it becomes.
        outputs: What a model answers, in the order in which it returns them; empty if it trains.
        batch_dims: For each value of a model that answers, the dimensions that grow with the number of samples in a batch.
        constants: The elements of sources that are neither parameters nor buffers, as tensors of torch. Not in the digest.
        call_structure: How a model that answers takes its inputs, as torch's pytree writes it. Not in the digest.
        answer_structure: How it puts its outputs together. Not in the digest.
    """

    name: str
    values: Mapping[str, Value]
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    loss: str = ""
    gradients: Mapping[str, str] = field(default_factory=dict[str, str])
    updates: Mapping[str, str] = field(default_factory=dict[str, str])
    outputs: tuple[str, ...] = ()
    batch_dims: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    call_structure: str = ""
    answer_structure: str = ""

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        """For each computed value, its node."""
        return {value: node for node in self.nodes for value in node.outputs if value}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """For each value, the nodes that read it."""
        nodes_of: dict[str, list[Node]] = {name: [] for name in self.values}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                nodes_of[name].append(node)
        return {name: tuple(nodes) for name, nodes in nodes_of.items()}

    @cached_property
    def node_named(self) -> Mapping[str, Node]:
        """Each node by its name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The values that no node computes: parameters, buffers, states and inputs."""
        return tuple(name for name, value in self.values.items() if value.kind is not ValueKind.ACTIVATION)

    @property
    def returned(self) -> tuple[str, ...]:
        """What the module returns: the loss, or its answers."""
        return self.outputs or (self.loss,)

    @cached_property
    def results(self) -> tuple[str, ...]:
        """The values that the program is run for: what it returns, the gradients and the updates, each once."""
        return tuple(dict.fromkeys((*self.returned, *self.gradients.values(), *self.updates.values())))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The values that are trained or at least held as parameters."""
        return tuple(name for name, value in self.values.items() if value.kind is ValueKind.PARAMETER)

    @cached_property
    def digest(self) -> str:
        """A hash of all that decides what the program computes, without its name."""
        lines = [
            [[v.name, v.shape, v.dtype, v.kind] for v in self.values.values()],
            [[n.name, n.op, repr(n.arguments), repr(n.keywords), n.outputs] for n in self.nodes],
            [self.inputs, self.loss, sorted(self.gradients.items()), sorted(self.updates.items())],
            *([self.outputs] if self.outputs else []),
        ]
        return hashlib.sha256(json.dumps(lines).encode()).hexdigest()
