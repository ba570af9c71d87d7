"""Why a run of a coroutine stops."""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from dyorc.engine.model.futures import Argument, Future
from dyorc.errors import DyOrcError


class Blocked(msgspec.Struct, frozen=True):
    """It needs these futures: to settle or, if they are ready, to be read."""

    pending: Sequence[Future]
    unfetched: Sequence[Future] = ()


class Undecided(msgspec.Struct, frozen=True):
    """It waits for a decision."""


class StreamFull(msgspec.Struct, frozen=True):
    """It waits until parts that were sent are taken."""


class Returned(msgspec.Struct, frozen=True):
    """The coroutine returned; one argument for each declared output, none if it has yielded them."""

    result: tuple[Argument, ...]


class Raised(msgspec.Struct, frozen=True):
    """The coroutine raised."""

    error: DyOrcError


End: TypeAlias = Returned | Raised
Stop: TypeAlias = Blocked | Undecided | StreamFull | End
