"""One operation with what it is applied to: what each meaning is a function of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from dyorc.offline.program import Argument, Ref
from dyorc.offline.program.graph import OutputShape
from dyorc.offline.verify.numbers import Array, Numbers


class UnknownOperationError(LookupError):
    """There is no definition of an operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operation with what it is applied to.

    Attributes:
        op: ATen's name without namespace and overload.
        arguments: As in a node.
        keywords: The same, by name.
        tensors: By the names that the arguments use.
        shape: Of the first output that is read.
    """

    op: str
    arguments: tuple[Argument, ...]
    keywords: Mapping[str, Argument]
    tensors: Mapping[str, Array]
    shape: tuple[int, ...]

    @property
    def tag(self) -> tuple[object, ...]:
        """The operation with its arguments, tensors left out: names its unknown functions."""
        return (self.op, _blank(self.arguments), tuple((key, _blank(value)) for key, value in sorted(self.keywords.items())))

    @property
    def arrays(self) -> list[Array]:
        """The tensors among the arguments, in order."""
        return [self.tensors[argument.name] for argument in _flat(self.arguments) if isinstance(argument, Ref)]

    def array(self, index: int) -> Array:
        """One argument, which must be a tensor."""
        argument = self.arguments[index]
        if not isinstance(argument, Ref):
            raise UnknownOperationError(f"{self.op} with {argument} where a tensor is usual")
        return self.tensors[argument.name]

    def operand(self, index: int, numbers: Numbers) -> Array:
        """One argument, a tensor or a number."""
        argument = self.arguments[index]
        return self.tensors[argument.name] if isinstance(argument, Ref) else numbers.scalar(cast(float, argument))

    def plain(self, index: int, name: str = "", default: Argument = None) -> Argument:
        """One argument that is no tensor, by position or by name."""
        return self.arguments[index] if index < len(self.arguments) else self.keywords.get(name, default)

    def integer(self, index: int, name: str = "", default: int = 0) -> int:
        """One argument, an integer."""
        return int(cast(int, self.plain(index, name, default)))

    def integers(self, index: int, name: str = "") -> list[int]:
        """One argument, integers or one integer."""
        found = self.plain(index, name)
        return (
            [int(cast(int, part)) for part in found]
            if isinstance(found, tuple)
            else []
            if found is None
            else [int(cast(int, found))]
        )


Result: TypeAlias = Array | tuple[Array, ...]
Meaning: TypeAlias = Callable[[Numbers, Call], Result]


def _blank(argument: Argument) -> object:
    match argument:
        case Ref():
            return "tensor"
        case OutputShape():
            return "shape"
        case tuple():
            return tuple(_blank(part) for part in argument)
        case _:
            return argument


def _flat(arguments: Sequence[Argument]) -> list[Argument]:
    return [leaf for a in arguments for leaf in (_flat(a) if isinstance(a, tuple) else [a])]
