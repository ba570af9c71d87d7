"""Reads the graph that torch has exported into a tensor program."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import getitem
from typing import Any, cast

import torch
from torch._subclasses import FakeTensor

from dyorc.errors import ProgramCaptureError
from dyorc.planner.program.evaluate import BY_STRIDES
from dyorc.planner.program.flat_module import FlatModule
from dyorc.planner.program.graph import Argument, Dtype, Node, Phase, TensorProgram, Value, ValueKind, ValueRef, type_sizes
from dyorc.planner.program.randomness import arguments_of, draws
from dyorc.planner.program.randomness.philox import STEP

_PLACE_KEYWORDS = {"device", "layout", "pin_memory", "memory_format", "non_blocking"}
"""Keywords that say where and how a tensor lies, not what it holds."""


class Reader:
    """Reads torch's graph into ours: once, by the method that says what the graph is of."""

    def __init__(self, name: str, graph_module: torch.fx.GraphModule, signature: Any, flat: FlatModule) -> None:
        self._name = name
        self._graph_module = graph_module
        self._signature = signature
        self._flat = flat
        self._values: dict[str, Value] = {}
        self._nodes: list[Node] = []
        self._names: dict[torch.fx.Node, str] = {}  # of nodes with one output
        self._parts: dict[torch.fx.Node, dict[int, str]] = {}  # of nodes with several: index -> value
        self._constants: dict[str, torch.Tensor] = {}
        self._results: list[torch.fx.Node] = []

    def training_step(self) -> TensorProgram:
        """Returns a graph of forward and backward."""
        self._read_all()
        trained = [n for i, n in enumerate(self._flat.parameter_names) if self._flat.get_parameter(f"parameter{i}").requires_grad]
        loss, *others = self._results
        buffers, gradients = others[: len(self._flat.buffer_names)], others[len(self._flat.buffer_names) :]
        return TensorProgram(
            name=self._name,
            values=self._values,
            nodes=tuple(self._in_phases(self._names[loss])),
            inputs=self._inputs,
            loss=self._names[loss],
            gradients={name: self._names[node] for name, node in zip(trained, gradients, strict=True)},
            updates=self._changed(buffers),
            constants=self._constants,
        )

    def inference(self) -> TensorProgram:
        """Returns a graph of forward alone."""
        self._read_all()
        num_answers = len(self._results) - len(self._flat.buffer_names)
        if changed := self._changed(self._results[num_answers:]):
            raise ProgramCaptureError(
                f"{self._name} changes its buffer {next(iter(changed))} when it answers: batches would differ"
            )
        outputs = tuple(self._names[node] for node in self._results[:num_answers])
        return TensorProgram(
            name=self._name,
            values=self._values,
            nodes=tuple(self._nodes),
            inputs=self._inputs,
            outputs=outputs,
            constants=self._constants,
        )

    def _read_all(self) -> None:
        for node in self._graph_module.graph.nodes:
            self._read(node)

    def _changed(self, buffers: Sequence[torch.fx.Node]) -> dict[str, str]:
        """The new values of buffers that the step changes; the others are still the copies that the flat module has made."""
        changed: dict[str, str] = {}
        for name, node in zip(self._flat.buffer_names, buffers, strict=True):
            source = _copied_source(node)
            if source is not None and self._names[source] == name:
                continue
            value, before = self._values[self._names[node]], self._values.get(name)
            if before is not None and (value.shape, value.dtype) != (before.shape, before.dtype):
                raise ProgramCaptureError(
                    f"{self._name} makes {value.dtype} {list(value.shape)} of its buffer {name}, which was {before.dtype} "
                    f"{list(before.shape)}: a plan repeats one step"
                )
            changed[name] = value.name
        return changed

    @property
    def _inputs(self) -> tuple[str, ...]:
        return tuple(name for name, value in self._values.items() if value.kind is ValueKind.INPUT)

    def _read(self, node: torch.fx.Node) -> None:
        if node.op == "placeholder":
            self._read_source(node)
        elif node.op == "call_function" and node.target is getitem:
            source, index = cast(tuple[torch.fx.Node, int], node.args)
            if index in self._parts[source]:  # torch also takes apart what it does not compute
                self._names[node] = self._parts[source][index]
        elif node.op == "call_function" and not _is_check(node):
            self._read_call(node)
        elif node.op == "get_attr":
            self._read_constant(node)
        elif node.op == "output":
            self._results = list(cast(tuple[torch.fx.Node, ...], node.args[0]))

    def _read_constant(self, node: torch.fx.Node) -> None:
        """Reads a tensor that is none of the module's parameters and buffers: a number if it has one element, else a source."""
        tensor: torch.Tensor = getattr(self._graph_module, cast(str, node.target))
        if tensor.is_meta or isinstance(tensor, FakeTensor):
            raise ProgramCaptureError(
                f"{self._name} holds a tensor of shape {list(tensor.shape)} without elements: register it as a buffer, or "
                "make the module elsewhere than on meta"
            )
        if tensor.dim() == 0:
            self._add(node.name, tensor, ValueKind.ACTIVATION)
            dtype = Dtype(str(tensor.dtype).removeprefix("torch."))
            number = Node(
                name=node.name,
                op="aten.full.default",
                arguments=((), tensor.item()),
                keywords=(("dtype", dtype),),
                outputs=(node.name,),
            )
            self._nodes.append(number)
            self._names[node] = node.name
            return
        # forward and backward hold the same constant as two tensors
        known = (name for name, other in self._constants.items() if other.dtype == tensor.dtype and torch.equal(other, tensor))
        name = next(known, f"constant_{len(self._constants)}")
        self._constants[name] = tensor.detach()
        self._add(name, tensor, ValueKind.BUFFER)
        self._names[node] = name

    def _read_source(self, node: torch.fx.Node) -> None:
        signature = self._signature
        if node.name in signature.inputs_to_parameters:
            index = int(signature.inputs_to_parameters[node.name].removeprefix("parameter"))
            name, kind = self._flat.parameter_names[index], ValueKind.PARAMETER
        elif node.name in signature.inputs_to_buffers:
            index = int(signature.inputs_to_buffers[node.name].removeprefix("buffer"))
            name = self._flat.buffer_names[index]
            kind = ValueKind.STATE if name == STEP else ValueKind.BUFFER
        else:
            name, kind = f"input_{sum(v.kind is ValueKind.INPUT for v in self._values.values())}", ValueKind.INPUT
        self._add(name, node.meta["val"], kind)
        self._names[node] = name

    def _read_call(self, node: torch.fx.Node) -> None:
        op = str(node.target)
        if op.startswith(BY_STRIDES) and not all(tensor.is_contiguous() for tensor in _tensors_of(node)):
            raise ProgramCaptureError(
                f"{self._name}: {op} reads the memory of a tensor that does not lie there row by row, and ranks hold "
                "pieces of it; call contiguous() before, or index it"
            )
        if draws(node.target, arguments_of(node.target, node.args, node.kwargs)):
            raise ProgramCaptureError(
                f"{self._name} draws random numbers in its backward pass ({op}), and only those of its forward pass are "
                "functions of a counter"
            )
        result = node.meta["val"]
        outputs: list[str] = []
        if isinstance(result, torch.Tensor):
            self._add(node.name, result, ValueKind.ACTIVATION)
            self._names[node] = node.name
            outputs = [node.name]
        else:
            self._parts[node] = {}
            read = {cast(int, user.args[1]) for user in node.users if user.target is getitem}
            for index, part in enumerate(result):
                name = f"{node.name}.{index}" if index in read and part is not None else ""
                if part is not None and name:
                    self._add(name, part, ValueKind.ACTIVATION)
                    self._parts[node][index] = name
                outputs.append(name)
        keywords = {key: value for key, value in node.kwargs.items() if key not in _PLACE_KEYWORDS}
        self._nodes.append(
            Node(
                name=node.name,
                op=op,
                arguments=tuple(self._argument(argument) for argument in node.args),
                keywords=tuple((key, self._argument(value)) for key, value in keywords.items()),
                outputs=tuple(outputs),
            )
        )

    def _argument(self, argument: Any) -> Argument:
        try:
            return argument_of(argument, lambda leaf: ValueRef(self._names[leaf]) if isinstance(leaf, torch.fx.Node) else None)
        except TypeError as error:
            raise ProgramCaptureError(f"{self._name}: {error} is not supported") from error

    def _add(self, name: str, tensor: torch.Tensor, kind: ValueKind) -> None:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in type_sizes:
            raise ProgramCaptureError(f"{self._name}: {name} is of type {dtype}, which is not supported")
        self._values[name] = Value(name=name, shape=tuple(int(n) for n in tensor.shape), dtype=dtype, kind=kind)

    def _in_phases(self, loss: str) -> list[Node]:
        """What the loss needs is forward; the rest is backward."""
        needed = {loss}
        phases: list[Node] = []
        for node in reversed(self._nodes):
            is_forward = any(output in needed for output in node.outputs)
            if is_forward:
                needed.update(node.inputs)
            phase = Phase.FORWARD if is_forward else Phase.BACKWARD
            phases.append(replace(node, phase=phase))
        return phases[::-1]


def argument_of(argument: Any, reference: Callable[[Any], ValueRef | None]) -> Argument:
    """Returns one of torch's arguments as one of a node; where a tensor lies, and how, is left out.

    Args:
        argument: Torch's.
        reference: Returns the `ValueRef` of a tensor; None for anything else.

    Raises:
        TypeError: Nodes have none of that type; names the type.
    """
    if (tensor := reference(argument)) is not None:
        return tensor
    match argument:
        case list() | tuple():
            return tuple(argument_of(part, reference) for part in argument)
        case torch.dtype():
            return Dtype(str(argument).removeprefix("torch."))
        case torch.device() | torch.memory_format() | torch.layout():
            return None
        case None | bool() | int() | float() | str():
            return argument
        case _:
            raise TypeError(f"an argument of type {type(argument).__name__}")


def _is_check(node: torch.fx.Node) -> bool:
    """Whether it computes nothing, and only fails if something is not as it should be."""
    return str(node.target).startswith(("aten._assert", "aten.sym_constrain"))


def _copied_source(node: torch.fx.Node) -> torch.fx.Node | None:
    """The source that a node is a copy of, through any number of copies; None if it is not a copy."""
    while node.op == "call_function" and str(node.target) in ("aten.clone.default", "aten.detach.default", "aten.alias.default"):
        node = cast(torch.fx.Node, node.args[0])
    return node if node.op == "placeholder" else None


def _tensors_of(node: torch.fx.Node) -> list[torch.Tensor]:
    return [argument.meta["val"] for argument in node.all_input_nodes]
