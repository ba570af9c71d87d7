"""Operations with actual tensors, each once: what recordings become after the simplifier."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch

from dyorc.planner.program.evaluate import compute_node
from dyorc.planner.program.graph import Node, TensorProgram, ValueKind, rename_values
from dyorc.planner.program.simplify import simplify
from tests.operators.closeness import difference
from tests.operators.recording import Recording

_MAX_ELEMENTS = 20_000


@dataclass(frozen=True, kw_only=True, eq=False)
class OperationSample:
    """One operation with actual tensors.

    Attributes:
        origin: The function of torch that called it first.
        program: The operation alone.
        inputs: Its tensors, by name.
        outputs: What torch computes for them, by name.
    """

    origin: str
    program: TensorProgram
    inputs: Mapping[str, torch.Tensor]
    outputs: Mapping[str, torch.Tensor]

    @property
    def node(self) -> Node:
        """The operation."""
        return self.program.nodes[0]

    @property
    def name(self) -> str:
        """The operation's name, without namespace and overload."""
        return self.node.op.split(".")[1]

    @property
    def key(self) -> str:
        """Equal for samples that differ in the elements of their tensors alone."""
        kinds = [(tensor.shape, tensor.dtype) for tensor in self.inputs.values()]
        return repr((self.node.op, self.node.arguments, self.node.keywords, kinds, self.node.outputs))

    def __str__(self) -> str:
        kinds = ", ".join(f"{name}: {list(tensor.shape)} {tensor.dtype}" for name, tensor in self.inputs.items())
        return f"{self.node.op}{self.node.arguments} {dict(self.node.keywords)} of {kinds} (from {self.origin})"


class SimplifierError(AssertionError):
    """A simplified program computes something else than torch did."""


def operations_of(recording: Recording) -> Iterator[OperationSample]:
    """Runs a recorded program in its normal form, and yields each of its operations.

    Raises:
        SimplifierError: The normal form computes something else than torch did.
    """
    program = simplify(recording.program)
    tensors = dict(recording.sources)
    for node in program.nodes:
        first = next(output for output in node.outputs if output)
        outputs = compute_node(node, tensors, program.values[first].shape)
        sample = _sample(program, node, tensors, outputs)
        tensors |= outputs
        if sum(tensor.numel() for tensor in (*sample.inputs.values(), *outputs.values())) <= _MAX_ELEMENTS:
            yield sample
    for before, after in zip(recording.program.outputs, program.outputs, strict=True):
        if wrong := difference(tensors[after], recording.results[before]):
            raise SimplifierError(f"{program.name}: {before} {wrong} after simplification")


def _sample(
    program: TensorProgram, node: Node, tensors: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor]
) -> OperationSample:
    """The node alone, with names that depend on nothing but places, so that equal operations have equal keys."""
    names = {name: f"in{index}" for index, name in enumerate(dict.fromkeys(node.inputs))}
    results = {name: f"out{index}" for index, name in enumerate(node.outputs) if name}
    alone = replace(
        node,
        name="alone",
        arguments=tuple(rename_values(argument, names) for argument in node.arguments),
        keywords=tuple((key, rename_values(value, names)) for key, value in node.keywords),
        outputs=tuple(results.get(name, "") for name in node.outputs),
    )
    values = {new: replace(program.values[old], name=new, kind=ValueKind.INPUT) for old, new in names.items()}
    values |= {new: replace(program.values[old], name=new, kind=ValueKind.ACTIVATION) for old, new in results.items()}
    return OperationSample(
        origin=program.name,
        program=TensorProgram(
            name=node.op, values=values, nodes=(alone,), inputs=tuple(names.values()), outputs=tuple(results.values())
        ),
        inputs={new: tensors[old].clone() for old, new in names.items()},
        outputs={new: outputs[old] for old, new in results.items()},
    )
