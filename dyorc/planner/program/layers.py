"""Finds the layers that a program repeats, and repeats them more often without capturing the model again.

A layer is a run of nodes that the program has several times in a row, forwards and, in the reverse order, backwards: the same
operations on the same shapes. What depends on no parameter, such as a causal mask, is computed once and belongs to no layer; but
each layer draws its own random numbers, as a model that was captured with so many layers does.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dyorc.errors import PlanError
from dyorc.planner.program.graph import Node, Phase, TensorProgram, Value, ValueKind, rename_values
from dyorc.planner.program.randomness.philox import draw_of, with_draw

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class _Place:
    """Where a value comes from: the node of a layer, and the number of the output."""

    phase: Phase
    layer: int
    position: int
    output: int


@dataclass(frozen=True)
class _Segments:
    """The nodes of each layer, in order, forwards and backwards."""

    program: TensorProgram
    forward: tuple[tuple[Node, ...], ...]
    backward: tuple[tuple[Node, ...], ...]

    @property
    def count(self) -> int:
        return len(self.forward)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The layer of each node that has one, by the node's name."""
        sides = (self.forward, self.backward)
        return {node.name: layer for side in sides for layer, nodes in enumerate(side) for node in nodes}

    @cached_property
    def places(self) -> dict[str, _Place]:
        """Where each value of a layer comes from."""
        places: dict[str, _Place] = {}
        for phase, side in ((Phase.FORWARD, self.forward), (Phase.BACKWARD, self.backward)):
            for layer, nodes in enumerate(side):
                for position, node in enumerate(nodes):
                    for index, output in enumerate(node.outputs):
                        places[output] = _Place(phase, layer, position, index)
        places.pop("", None)
        return places

    def node_at(self, phase: Phase, layer: int, position: int) -> Node:
        return (self.forward if phase is Phase.FORWARD else self.backward)[layer][position]


def number_layers(program: TensorProgram) -> TensorProgram:
    """Returns the program with the number of its layer in each node that belongs to one; the same if nothing is repeated."""
    layers = _segments(program)
    if layers is None:
        return program
    return replace(program, nodes=tuple(replace(node, layer=layers.numbers.get(node.name)) for node in program.nodes))


def repeat_layers(program: TensorProgram, count: int) -> TensorProgram:
    """Returns the program with `count` layers instead of its own: forward, backward, and gradients for each layer.

    Two captured layers are enough to tell what a layer takes from the one before and, backwards, from the one after.

    Args:
        program: With at least two equal layers in a row, and without the optimizer's step.
        count: At least as many as it has.

    Raises:
        PlanError: The program repeats nothing, has more layers than asked for, or ties its layers in a way that has no pattern.
    """
    layers = _segments(program)
    if layers is None:
        raise PlanError(f"{program.name} does not repeat any layer: capture it with at least two equal layers in a row")
    if count < layers.count:
        raise PlanError(f"{program.name} has {layers.count} layers already, more than {count}")
    return _Repeater(layers, count).run()


def _segments(program: TensorProgram) -> _Segments | None:
    free = _without_parameters(program)
    sides = {phase: [node for node in program.nodes if node.phase is phase and node.name not in free] for phase in Phase}
    forward = _runs(sides[Phase.FORWARD], program, None, lambda first, second: _num_unlike(first, second, program))
    if forward is None:
        return None
    last = {output for node in forward[-1] for output in node.outputs}
    backward = _runs(
        sides[Phase.BACKWARD], program, len(forward), lambda first, _: -sum(last.issuperset(n.inputs) for n in first)
    )
    return _Segments(program, forward, backward[::-1]) if backward else None


def _without_parameters(program: TensorProgram) -> set[str]:
    """The nodes that depend on no parameter and draw nothing, by name."""
    depends = {name for name, value in program.values.items() if value.kind in (ValueKind.PARAMETER, ValueKind.STATE)}
    free: set[str] = set()
    for node in program.nodes:
        if depends.isdisjoint(node.inputs):
            free.add(node.name)
        else:
            depends.update(node.outputs)
    return free


def _num_unlike(nodes: Sequence[Node], other: Sequence[Node], program: TensorProgram) -> int:
    """How many sources two layers read whose names do not differ in numbers only."""
    pairs = {pair for left, right in zip(nodes, other, strict=True) for pair in zip(left.inputs, right.inputs, strict=True)}
    sources = [pair for pair in pairs if all(program.values[name].kind is not ValueKind.ACTIVATION for name in pair)]
    return sum(_NUMBER.sub("", left) != _NUMBER.sub("", right) for left, right in sources)


def _runs(
    nodes: Sequence[Node],
    program: TensorProgram,
    count: int | None,
    badness: Callable[[Sequence[Node], Sequence[Node]], int],
) -> tuple[tuple[Node, ...], ...] | None:
    """The equal runs in a row that cover most of the nodes.

    Args:
        nodes: Of one phase, in order.
        program: That they are of.
        count: How many runs there must be; None if any number will do.
        badness: Where the runs may begin at several nodes, of those between which the fewest values cross: what says of the
            first two runs how bad that beginning is.
    """
    numbers: dict[object, int] = {}
    tokens = np.array([numbers.setdefault(_token(node, program), len(numbers)) for node in nodes], dtype=np.int64)
    best, best_covered = None, 0
    for period in range(2, len(tokens) // (count or 2) + 1):
        start, length = _longest(tokens[:-period] == tokens[period:])
        times = (length + period) // period
        if times < 2 or (count is not None and times < count):
            continue
        covered = (count or times) * period
        if covered > best_covered:
            best, best_covered = (start, length + period, period, count or times), covered
    if best is None:
        return None
    start, length, period, times = best
    slack = length - period * times

    def runs(begin: int) -> list[tuple[Node, ...]]:
        return [tuple(nodes[begin + index * period : begin + (index + 1) * period]) for index in range(times)]

    def cost(begin: int) -> tuple[int, int]:
        return _num_crossing(nodes, begin + period), badness(*runs(begin)[:2])

    return tuple(runs(min(range(start, start + slack + 1), key=cost)))


def _token(node: Node, program: TensorProgram) -> object:
    shapes = tuple((program.values[name].shape, program.values[name].dtype) for name in node.inputs)
    anonymous = dict.fromkeys(node.inputs, "")
    node = node if draw_of(node) is None else with_draw(node, 0)  # each layer draws its own numbers
    arguments = tuple(rename_values(argument, anonymous) for argument in node.arguments)
    outputs = tuple(program.values[name].shape if name else None for name in node.outputs)
    return (
        node.op,
        repr(arguments),
        repr([(key, rename_values(value, anonymous)) for key, value in node.keywords]),
        shapes,
        outputs,
    )


def _longest(alike: NDArray[np.bool_]) -> tuple[int, int]:
    """The start and the length of the longest run of truths."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], alike, [False])).astype(np.int8)))
    starts, lengths = edges[::2], edges[1::2] - edges[::2]
    if not len(starts):
        return 0, 0
    best = int(lengths.argmax())
    return int(starts[best]), int(lengths[best])


def _num_crossing(nodes: Sequence[Node], cut: int) -> int:
    """How many values are computed before a cut and read after it."""
    before = {output for node in nodes[:cut] for output in node.outputs if output}
    return len({name for node in nodes[cut:] for name in node.inputs if name in before})


class _Draws:
    """Numbers the draws of a program with more layers in the order in which its module would draw."""

    def __init__(self, segments: _Segments, count: int) -> None:
        last, before = ([d for node in nodes if (d := draw_of(node)) is not None] for nodes in segments.forward[:-3:-1])
        self._last = segments.count - 1
        self._first = min(last, default=0)
        self._num = self._first - min(before, default=0)
        self._num_added = self._num * (count - segments.count)

    def of_layer(self, draw: int, layer: int) -> int:
        """In the copy of the last layer that is a layer now."""
        return draw + self._num * (layer - self._last)

    def of_kept(self, draw: int) -> int:
        """Of the last layer, which stays the last, and of what comes after it; what comes before stays."""
        return draw if draw < self._first else draw + self._num_added


class _Repeater:
    """Writes the program with more layers: those it has, the last of them as the new last, and copies before that."""

    def __init__(self, segments: _Segments, count: int) -> None:
        self._old = segments
        self._program = segments.program
        self._count = count
        self._last = segments.count - 1
        self._values: dict[str, Value] = {}
        self._nodes: list[Node] = []
        self._sources = self._sources_of_layers()
        self._draws = _Draws(segments, count)

    def run(self) -> TensorProgram:
        for node in self._with_copies():
            self._nodes.append(node)
        kept = {name: value for name, value in self._program.values.items() if value.kind is not ValueKind.ACTIVATION}
        sources = {new: replace(kept[old], name=new) for old in kept for new in self._all_names(old)}
        gradients = {
            new: value for old in self._program.gradients for new, value in self._per_layer(old, self._program.gradients)
        }
        updates = {new: value for old in self._program.updates for new, value in self._per_layer(old, self._program.updates)}
        return replace(
            self._program,
            values=sources | self._values,
            nodes=tuple(self._nodes),
            loss=self._program.loss,
            gradients=gradients,
            updates=updates,
        )

    def _with_copies(self) -> Iterator[Node]:
        """The nodes in order: copies stand before the last layer forwards, and after it backwards."""
        old = self._old
        forward_end, backward_end = old.forward[self._last - 1][-1].name, old.backward[self._last][-1].name
        copies = range(self._last, self._count - 1)
        for node in self._program.nodes:
            yield self._kept(node)
            if node.name == forward_end:
                for layer in copies:
                    yield from self._copies(Phase.FORWARD, layer)
            if node.name == backward_end:
                for layer in reversed(copies):
                    yield from self._copies(Phase.BACKWARD, layer)

    def _kept(self, node: Node) -> Node:
        layer = self._old.numbers.get(node.name)
        if layer is None:
            last = {name: self._sources[name][self._count - 1] for name in node.inputs if name in self._sources}
            return self._written(node, last, None)
        new = self._now(layer)
        return self._written(node, {name: self._seen_from(name, layer, new) for name in node.inputs}, new)

    def _copies(self, phase: Phase, layer: int) -> Iterator[Node]:
        """A layer's nodes; each input is where the last layer has it, or the first if the last takes it from outside."""
        num = len(self._old.forward[0] if phase is Phase.FORWARD else self._old.backward[0])
        for position in range(num):
            node = self._old.node_at(phase, self._last, position)
            other = self._old.node_at(phase, self._last - 1, position)
            names: dict[str, str] = {}
            for name, twin in zip(node.inputs, other.inputs, strict=True):
                new = self._copied(name, twin, layer)
                if names.setdefault(name, new) != new:
                    raise PlanError(f"{self._program.name}: {node.name} reads {name} twice in one layer, and not in another")
            yield self._written(node, names, layer, copy=True)

    def _copied(self, name: str, twin: str, layer: int) -> str:
        places = self._old.places
        for mine, of in ((name, self._last), (twin, self._last - 1)):
            if mine in places:
                return self._named(places[mine], places[mine].layer - of + layer)
        if name in self._sources:
            return self._sources[name][layer]
        if name != twin:
            raise PlanError(f"{self._program.name}: {name} and {twin}, which two layers read, follow no pattern")
        return name

    def _now(self, layer: int) -> int:
        return self._count - 1 if layer == self._last else layer

    def _seen_from(self, name: str, layer: int, new: int) -> str:
        if layer == self._last and name in self._sources:
            return self._sources[name][new]
        place = self._old.places.get(name)
        return name if place is None else self._named(place, place.layer - layer + new)

    def _named(self, place: _Place, layer: int) -> str:
        """The name of a value in a layer of the new program."""
        if not 0 <= layer < self._count:
            raise PlanError(f"{self._program.name}: layer {layer} would be read, which is outside of all layers")
        if layer < self._last or layer == self._count - 1:
            old = layer if layer < self._last else self._last
            return self._old.node_at(place.phase, old, place.position).outputs[place.output]
        return _name(self._old.node_at(place.phase, self._last, place.position).outputs[place.output], layer)

    def _written(self, node: Node, names: Mapping[str, str], layer: int | None, *, copy: bool = False) -> Node:
        outputs = tuple(_name(output, layer) if copy and layer is not None and output else output for output in node.outputs)
        for old, new in zip(node.outputs, outputs, strict=True):
            if new:
                self._values[new] = replace(self._program.values[old], name=new)
        if (draw := draw_of(node)) is not None:
            node = with_draw(node, self._draws.of_layer(draw, layer) if copy and layer is not None else self._draws.of_kept(draw))
        return replace(
            node,
            name=_name(node.name, layer) if copy and layer is not None else node.name,
            arguments=tuple(rename_values(argument, names) for argument in node.arguments),
            keywords=tuple((key, rename_values(value, names)) for key, value in node.keywords),
            outputs=outputs,
            layer=layer,
        )

    def _sources_of_layers(self) -> dict[str, dict[int, str]]:
        """For each source that only one layer reads: what it is called in each copy, and in the new last layer."""
        sources: dict[str, dict[int, str]] = {}
        for phase, side in ((Phase.FORWARD, self._old.forward), (Phase.BACKWARD, self._old.backward)):
            for position, node in enumerate(side[self._last]):
                other = self._old.node_at(phase, self._last - 1, position)
                for name, twin in zip(node.inputs, other.inputs, strict=True):
                    if name != twin and all(self._program.values[n].kind is not ValueKind.ACTIVATION for n in (name, twin)):
                        sources[name] = {
                            layer: _counted(twin, name, layer - self._last) for layer in range(self._last, self._count)
                        }
        return sources

    def _all_names(self, source: str) -> list[str]:
        return list(self._sources[source].values()) if source in self._sources else [source]

    def _per_layer(self, source: str, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        value = values[source]
        if source not in self._sources:
            yield source, value
        for layer, name in self._sources.get(source, {}).items():
            place = self._old.places.get(value)
            if place is None:
                raise PlanError(f"{self._program.name}: {value} of {source} is computed outside of the layers")
            yield name, self._named(place, place.layer - self._last + layer)


def _name(name: str, layer: int) -> str:
    return f"{name}_layer{layer}"


def _counted(before: str, last: str, further: int) -> str:
    """A source's name in a copy: the numbers in which two layers' names differ go on."""
    parts: list[str] = []
    for word, other in zip(before.split("."), last.split("."), strict=False):
        if word == other:
            parts.append(other)
        elif word.isdecimal() and other.isdecimal():
            parts.append(str(int(other) + further * (int(other) - int(word))))
        else:
            return _name(last, further)
    return ".".join(parts)
