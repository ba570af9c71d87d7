"""Why a run of a coroutine stops."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dyorc.engine.model.futures import Argument, Future
from dyorc.engine.model.journal import BranchPoint
from dyorc.errors import DyOrcError


@dataclass(frozen=True, slots=True)
class Blocked:
    """It needs these futures: to settle or, if they are ready, to be read."""

    pending: Sequence[Future]
    unfetched: Sequence[Future] = ()


@dataclass(frozen=True, slots=True)
class Undecided:
    """It waits for a decision."""

    point: BranchPoint


@dataclass(frozen=True, slots=True)
class StreamFull:
    """It waits until parts that were sent are taken."""


@dataclass(frozen=True, slots=True)
class Returned:
    """The coroutine returned; one argument for each declared output, none if it has yielded them."""

    result: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Raised:
    """The coroutine raised."""

    error: DyOrcError


End: TypeAlias = Returned | Raised
Stop: TypeAlias = Blocked | Undecided | StreamFull | End
