"""The letters of one operation, and a node whose arguments have names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from dyorc.planner.program.graph import Argument, Node, Value, ValueRef
from dyorc.planner.program.torch_operations import bind_arguments

Letters: TypeAlias = tuple[str | None, ...]
Values: TypeAlias = Mapping[str, Value]
Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The letters of one node.

    Attributes:
        inputs: For each input, in the order of `Node.inputs`, a letter or None for each dimension.
        outputs: The same for each output.
        linear: Sets of inputs, by index: the outputs are linear in the inputs of a set taken together, so that partial sums of
            exactly these become partial sums of the outputs.
        untouched: Pairs of a letter and an output, by index, that has not the letter and does not depend on what has it.
    """

    inputs: tuple[Letters, ...]
    outputs: tuple[Letters, ...]
    linear: tuple[tuple[int, ...], ...] = ()
    untouched: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class BoundNode:
    """A node whose arguments have the names that torch gives them, however they were passed.

    Attributes:
        node: The node.
        values: All of its program.
    """

    node: Node
    values: Values

    @property
    def name(self) -> str:
        """ATen's name of the operation, without its overload."""
        return self.node.op.split(".")[1]

    @cached_property
    def named(self) -> Mapping[str, Argument]:
        """Its arguments by name, with defaults."""
        return bind_arguments(self.node.op, self.node.arguments, self.node.keywords)

    @property
    def inputs(self) -> list[Shape]:
        """The shapes of its inputs, in the order of `Node.inputs`."""
        return [self.values[name].shape for name in self.node.inputs]

    @property
    def outputs(self) -> list[Shape]:
        """The shapes of its outputs; `()` for one that no node reads."""
        return [self.values[name].shape if name else () for name in self.node.outputs]

    def has(self, name: str) -> bool:
        """Whether an argument is a tensor."""
        return isinstance(self.named.get(name), ValueRef)

    def shape(self, name: str) -> Shape:
        """The shape of an argument that is a tensor."""
        argument = self.named[name]
        if not isinstance(argument, ValueRef):
            raise TypeError(f"{self.node.op}: {name} must be a tensor and is {argument}")
        return self.values[argument.name].shape

    def integers(self, name: str) -> list[int]:
        """An argument of integers, or of one; nothing if it is None or the operation has none of that name."""
        argument = self.named.get(name)
        parts = argument if isinstance(argument, tuple) else () if argument is None else (argument,)
        return [part for part in parts if isinstance(part, int)]

    def integer(self, name: str) -> int:
        """An argument that must be an integer."""
        argument = self.named.get(name)
        if not isinstance(argument, int):
            raise TypeError(f"{self.node.op}: {name} must be an integer and is {argument}")
        return argument

    def rule(
        self,
        letters: Mapping[str, Letters | Sequence[Letters]],
        *outputs: Letters,
        linear: Sequence[Sequence[str]] = (),
        untouched: tuple[tuple[str, int], ...] = (),
    ) -> Rule:
        """Returns a rule for what is known of arguments by name.

        Args:
            letters: Of each tensor, or of each tensor of a list; a tensor that is not named stays whole.
            outputs: The letters of the outputs.
            linear: Sets of arguments. Arguments that are no tensors are left out, and so is an empty set.
            untouched: As in `Rule`.
        """
        owners = self.owners
        taken = dict.fromkeys(letters, 0)
        inputs: list[Letters] = []
        for index, owner in enumerate(owners):
            known = letters.get(owner, (None,) * len(self.inputs[index]))
            if known and isinstance(known[0], tuple):
                inputs.append(known[taken[owner]])  # pyright: ignore[reportArgumentType]
                taken[owner] += 1
            else:
                inputs.append(known)  # pyright: ignore[reportArgumentType]
        sets = [tuple(index for index, owner in enumerate(owners) if owner in names) for names in linear]
        return Rule(inputs=tuple(inputs), outputs=outputs, linear=tuple(filter(None, sets)), untouched=untouched)

    @cached_property
    def owners(self) -> list[str]:
        """For each input, the name of the argument that it belongs to."""
        arguments = [*zip(self.named, self.node.arguments, strict=False), *self.node.keywords]
        return [name for name, argument in arguments for _ in range(_num_tensors(argument))]


def _num_tensors(argument: Argument) -> int:
    if isinstance(argument, tuple):
        return sum(map(_num_tensors, argument))
    return int(isinstance(argument, ValueRef))


def names(num_dims: int, prefix: str = "d") -> Letters:
    """Returns a separate letter for each dimension."""
    return tuple(f"{prefix}{dim}" for dim in range(num_dims))


def without(letters: Letters, *dims: int) -> Letters:
    """Returns the letters without those of dimensions that must stay whole; they may be counted from the end."""
    whole = {dim % len(letters) for dim in dims if letters}
    return tuple(None if dim in whole else letter for dim, letter in enumerate(letters))


def along(node: BoundNode, *dims: int, linear: Sequence[Sequence[str]] = ()) -> Rule:
    """Returns the rule of an operation on `self` that works along some dimensions; its outputs have the dimensions of `self`."""
    letters = without(names(len(node.shape("self"))), *dims)
    return node.rule({"self": letters}, *(letters for _ in node.outputs), linear=linear)


def broadcast(shape: Shape, wide: Shape, letters: Letters) -> Letters:
    """Returns the letters of an input that is broadcast to a wider shape: what is repeated has none."""
    skipped = len(wide) - len(shape)
    return tuple(
        letter if extent == whole else None
        for extent, whole, letter in zip(shape, wide[skipped:], letters[skipped:], strict=True)
    )


Maker: TypeAlias = Callable[[BoundNode], Rule | None]
"""Finds the rule of a node; None if it must stay whole."""
