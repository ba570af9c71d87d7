"""One operation with what it is applied to: what each meaning is a function of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from dyorc.planner.program import Argument, ValueRef
from dyorc.planner.program.graph import OutputShape
from dyorc.planner.verify.numbers import Array, Numbers


class UnknownOperationError(LookupError):
    """There is no definition of an operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCall:
    """One operation with what it is applied to.

    Attributes:
        op: ATen's name without namespace and overload.
        named: Its arguments by the names of torch's schema, in its order, with defaults.
        tensors: By the names that the arguments use.
        shape: Of the first output that is read.
    """

    op: str
    named: Mapping[str, Argument]
    tensors: Mapping[str, Array]
    shape: tuple[int, ...]

    @property
    def tag(self) -> tuple[object, ...]:
        """The operation with its arguments, tensors left out: names its unknown functions."""
        return (self.op, tuple((name, _blank(value)) for name, value in self.named.items()))

    @property
    def arrays(self) -> list[Array]:
        """The tensors among the arguments, in order."""
        return [self.tensors[argument.name] for argument in _flat(tuple(self.named.values())) if isinstance(argument, ValueRef)]

    def has(self, name: str) -> bool:
        """Whether an argument is a tensor."""
        return isinstance(self.named.get(name), ValueRef)

    def array(self, name: str) -> Array:
        """One argument, which must be a tensor."""
        argument = self.named.get(name)
        if not isinstance(argument, ValueRef):
            raise UnknownOperationError(f"{self.op} with {name} = {argument} where a tensor is usual")
        return self.tensors[argument.name]

    def operand(self, name: str, numbers: Numbers) -> Array:
        """One argument, a tensor or a number."""
        argument = self.named[name]
        return self.tensors[argument.name] if isinstance(argument, ValueRef) else numbers.scalar(cast(float, argument))

    def plain(self, name: str, default: Argument = None) -> Argument:
        """One argument that is no tensor; the default if it is None or the overload has none of that name."""
        argument = self.named.get(name)
        return default if argument is None else argument

    def integer(self, name: str, default: int = 0) -> int:
        """One argument, an integer."""
        return int(cast(int, self.plain(name, default)))

    def integers(self, name: str) -> list[int]:
        """An argument of one or more integers; empty if the call does not have it."""
        argument = self.plain(name, ())
        return [int(cast(int, part)) for part in (argument if isinstance(argument, tuple) else (argument,))]


Result: TypeAlias = Array | tuple[Array, ...]
Meaning: TypeAlias = Callable[[Numbers, OperationCall], Result]


def _blank(argument: Argument) -> object:
    match argument:
        case ValueRef():
            return "tensor"
        case OutputShape():
            return "shape"
        case tuple():
            return tuple(_blank(part) for part in argument)
        case _:
            return argument


def _flat(arguments: Sequence[Argument]) -> list[Argument]:
    return [leaf for a in arguments for leaf in (_flat(a) if isinstance(a, tuple) else [a])]
