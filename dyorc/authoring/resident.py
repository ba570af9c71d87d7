"""`dyorc.Resident`: a result that stays in the process that made it, such as a KV cache; and how one that was lost is rebuilt."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import msgspec
import numpy as np


class Consumed:
    """Marks a resident that the program overwrites: ``cache: dyorc.Resident[Cache, dyorc.Consumed]``."""


@dataclass(frozen=True, slots=True)
class ResidentMark:
    """What `Resident[...]` leaves in an annotation.

    Attributes:
        kind: The type of the objects, for people.
        is_consumed: Whether the program overwrites the object that it is given.
    """

    kind: Any
    is_consumed: bool = False


if TYPE_CHECKING:
    from typing_extensions import TypeAliasType
    from typing_extensions import TypeVar as TypeVarWithDefault

    _T = TypeVar("_T")
    _Consuming = TypeVarWithDefault("_Consuming", default=None)
    # To a type checker anything: a list of objects in a program that is batched, and the object itself in one that is not.
    Resident = TypeAliasType("Resident", Any, type_params=(_T, _Consuming))

else:

    class Resident:
        """A Python object, one per row, that never leaves the process that made it; a program takes and returns these in a list.

        ``Resident[Cache]`` annotates a parameter or an output of a program. Its Ref can be passed to programs of the same group,
        and cannot be awaited. A program that takes one leaves it as it was, and returns a new object, which may share what it
        likes with the old one; ``Resident[Cache, dyorc.Consumed]`` says that it overwrites the object.
        """

        def __class_getitem__(cls, item: Any) -> Any:
            kind, *marks = item if isinstance(item, tuple) else (item,)
            if any(mark is not Consumed for mark in marks) or len(marks) > 1:
                raise TypeError(f"Resident[...] takes a type and, at most, dyorc.Consumed; got {item!r}")
            return Annotated[object, ResidentMark(kind, bool(marks))]


_Static: TypeAlias = bool | int | float | str


@dataclass(frozen=True, slots=True)
class ChainCall:
    """A call of a chain, which is calls that hand on residents: one item of what ``rebuild(self, calls)`` gets.

    A program class may declare ``def rebuild(self, calls: list[dyorc.ChainCall]) -> object``: it gets the calls of a chain from
    its beginning, and returns the resident that the last of them returned; a tuple, if it returned several. It is called in place
    of all of them when that resident was lost. Without it, they run again one by one.

    Attributes:
        program: The name of the program that was called, as its code gives it.
        inputs: Its tensors, in the order of its parameters, for one item. NumPy.
        statics: Its static parameters, in their order.
    """

    program: str
    inputs: tuple[np.ndarray[Any, Any], ...]
    statics: tuple[_Static, ...] = ()


class ChainLink(msgspec.Struct, frozen=True, array_like=True):
    """A `ChainCall` on its way to a replica: its inputs are the next `num_inputs` operands of the batch."""

    program: str
    num_inputs: int
    statics: tuple[_Static, ...] = ()
