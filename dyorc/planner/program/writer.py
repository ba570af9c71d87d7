"""Writes programs: adds values and operations to one that was captured."""

from collections.abc import Mapping
from dataclasses import replace

from dyorc.planner.program.graph import Argument, Node, Phase, TensorProgram, Value, ValueKind, ValueRef, rename_values


class ProgramWriter:
    """Adds values and nodes to a program: its optimizer's, unless `phase` says otherwise."""

    def __init__(self, program: TensorProgram, phase: Phase = Phase.UPDATE) -> None:
        self.phase = phase
        self._program = program
        self._values = dict(program.values)
        self._nodes = list(program.nodes)
        self._inputs = list(program.inputs)
        self._loss = program.loss
        self._updates = dict(program.updates)
        self._layers = {output: node.layer for node in program.nodes for output in node.outputs}
        self._layer: int | None = None

    def state(self, name: str, like: str = "") -> str:
        """Adds a state of the optimizer: as large as a parameter, or a scalar."""
        shape, dtype = (self._values[like].shape, self._values[like].dtype) if like else ((), "float64")
        self._values[name] = Value(name=name, shape=shape, dtype=dtype, kind=ValueKind.STATE)
        return name

    def of(self, gradient: str) -> None:
        """Says that what is added now belongs to the layer that computes a gradient."""
        self._layer = self._layers.get(gradient)

    def add(self, name: str, op: str, like: str, *arguments: Argument, **keywords: Argument) -> str:
        """Adds an operation and the value it computes, which is `like` another one, and returns its name."""
        arguments = tuple(ValueRef(a) if isinstance(a, str) and a in self._values else a for a in arguments)
        self._layers[name] = self._layer
        model = self._values[like]
        self._values[name] = Value(name=name, shape=model.shape, dtype=model.dtype, kind=ValueKind.ACTIVATION)
        self._nodes.append(
            Node(
                name=name,
                op=f"aten.{op}",
                arguments=arguments,
                keywords=tuple(keywords.items()),
                outputs=(name,),
                phase=self.phase,
                layer=self._layer,
            )
        )
        return name

    def becomes(self, source: str, value: str) -> None:
        """Says what a parameter or state becomes."""
        self._updates[source] = value

    def input(self, name: str, like: Value) -> None:
        """Adds an input of the step."""
        self._values[name] = replace(like, name=name)
        self._inputs.append(name)

    def loss(self, value: str) -> None:
        """Says which value is minimized."""
        self._loss = value

    def copy(self, node: Node, program: TensorProgram, names: Mapping[str, str], suffix: str) -> None:
        """Adds a copy of a program's node.

        Args:
            node: The node.
            program: Has it.
            names: What its values are called here; others keep their names.
            suffix: What is added to the node's name.
        """
        outputs = tuple(names.get(name, name) for name in node.outputs)
        for before, after in zip(node.outputs, outputs, strict=True):
            if after:
                self._values[after] = replace(program.values[before], name=after)
                self._layers[after] = node.layer
        arguments = tuple(rename_values(argument, names) for argument in node.arguments)
        keywords = tuple((key, rename_values(value, names)) for key, value in node.keywords)
        name = f"{node.name}{suffix}"
        self._nodes.append(replace(node, name=name, arguments=arguments, keywords=keywords, outputs=outputs))

    def program(self) -> TensorProgram:
        """Returns the program with all that was added."""
        nodes, inputs = tuple(self._nodes), tuple(self._inputs)
        return replace(self._program, values=self._values, nodes=nodes, inputs=inputs, loss=self._loss, updates=self._updates)
