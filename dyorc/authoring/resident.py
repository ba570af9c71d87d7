"""`dyorc.Resident`: a result that stays in the process that made it, such as a KV cache."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    T_co = TypeVar("T_co", covariant=True)
    Consuming = TypeVarWithDefault("Consuming", default=None)


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

    class Resident(Sequence[T_co], Generic[T_co, Consuming]): ...

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
