"""Reads the graph that torch has exported into a tensor program."""

from dataclasses import replace
from operator import getitem
from typing import Any, cast

import torch

from dyorc.errors import ProgramCaptureError
from dyorc.offline.program.graph import Argument, Dtype, Node, Phase, Ref, TensorProgram, Value, ValueKind, type_sizes
from dyorc.offline.program.randomness import arguments_of, draws
from dyorc.offline.program.randomness.philox import STEP

STEP_BUFFER = "random_step"
"""The buffer that counts steps, of the module that is exported; no buffer of the caller's module is called so there."""
_PLACE_KEYWORDS = {"device", "layout", "pin_memory", "memory_format", "non_blocking"}
"""Keywords that say where and how a tensor lies, not what it holds."""


class Reader:
    """Reads torch's graph into ours: once, by the method that says what the graph is of."""

    def __init__(self, name: str, graph: torch.fx.Graph, signature: Any) -> None:
        self._name = name
        self._graph = graph
        self._signature = signature
        self._values: dict[str, Value] = {}
        self._nodes: list[Node] = []
        self._names: dict[torch.fx.Node, str] = {}  # of nodes with one output
        self._parts: dict[torch.fx.Node, dict[int, str]] = {}  # of nodes with several: index -> value

    def training_step(self) -> TensorProgram:
        """Returns a graph of forward and backward."""
        for node in self._graph.nodes:
            self._read(node)
        signature = self._signature
        grads = {
            _own(signature.backward_signature.gradients_to_parameters[output]): self._of_output(output)
            for output in signature.backward_signature.gradients_to_parameters
        }
        updates = {_own(buffer): self._of_output(output) for output, buffer in signature.buffers_to_mutate.items()}
        if STEP in self._values and STEP not in updates:  # the module draws nothing
            del self._values[STEP]
        loss = self._of_output(signature.user_outputs[0])  # what it names as the loss may be an updated buffer
        return TensorProgram(
            name=self._name,
            values=self._values,
            nodes=tuple(self._in_phases(loss)),
            inputs=self._inputs,
            loss=loss,
            gradients=grads,
            updates=updates,
        )

    def inference(self) -> TensorProgram:
        """Returns a graph of forward alone."""
        for node in self._graph.nodes:
            self._read(node)
        if self._signature.buffers_to_mutate:
            changed = _own(next(iter(self._signature.buffers_to_mutate.values())))
            raise ProgramCaptureError(f"{self._name} changes its buffer {changed} when it answers: batches would differ")
        outputs = tuple(self._of_output(output) for output in self._signature.user_outputs)
        return TensorProgram(name=self._name, values=self._values, nodes=tuple(self._nodes), inputs=self._inputs, outputs=outputs)

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
            raise ProgramCaptureError(f"{self._name} holds the constant {node.target}: register it as a buffer of the module")

    def _read_source(self, node: torch.fx.Node) -> None:
        signature = self._signature
        if node.name in signature.inputs_to_parameters:
            name, kind = _own(signature.inputs_to_parameters[node.name]), ValueKind.PARAMETER
        elif node.name in signature.inputs_to_buffers:
            name, kind = _own(signature.inputs_to_buffers[node.name]), ValueKind.BUFFER
            if name == STEP and signature.inputs_to_buffers[node.name] == STEP_BUFFER:
                kind = ValueKind.STATE
        else:
            name, kind = f"input_{sum(v.kind is ValueKind.INPUT for v in self._values.values())}", ValueKind.INPUT
        self._add(name, node.meta["val"], kind)
        self._names[node] = name

    def _read_call(self, node: torch.fx.Node) -> None:
        op = str(node.target)
        if draws(node.target, arguments_of(node.target, node.args, node.kwargs)):
            raise ProgramCaptureError(
                f"{self._name} draws random numbers in its backward pass ({op}), and only those of its forward pass are a function "
                "of a counter; if it computes activations again (checkpoint), keep them instead"
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
        match argument:
            case torch.fx.Node():
                return Ref(self._names[argument])
            case list() | tuple():
                return tuple(self._argument(part) for part in argument)
            case torch.dtype():
                return Dtype(str(argument).removeprefix("torch."))
            case torch.device() | torch.memory_format() | torch.layout():
                return None
            case None | bool() | int() | float() | str():
                return argument
            case _:
                raise ProgramCaptureError(f"{self._name}: an argument of type {type(argument).__name__} is not supported")

    def _add(self, name: str, tensor: torch.Tensor, kind: ValueKind) -> None:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in type_sizes:
            raise ProgramCaptureError(f"{self._name}: {name} is of type {dtype}, which is not supported")
        self._values[name] = Value(name=name, shape=tuple(int(n) for n in tensor.shape), dtype=dtype, kind=kind)

    def _of_output(self, output: str) -> str:
        node = next(node for node in self._names if node.name == output)
        return self._names[node]

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


def _is_check(node: torch.fx.Node) -> bool:
    """Whether it computes nothing, and only fails if something is not as it should be."""
    return str(node.target).startswith(("aten._assert", "aten.sym_constrain"))


def _own(name: str) -> str:
    """The parameter's name in the caller's module; only the counter of steps is none of its own."""
    return STEP if name == STEP_BUFFER else name.removeprefix("module.")
