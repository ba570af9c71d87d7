"""A submission: the gateway makes it, a backend runs it."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from dyorc.authoring.signature import StaticValue
from dyorc.core.arrays import Array
from dyorc.core.request import RequestFacts, Terms
from dyorc.models.offers import ModelKey
from dyorc.telemetry.record import Origin, RequestRecorder
from dyorc.transport.arena import ArenaBody

BeginEpoch: TypeAlias = Callable[[], Callable[[], bool]]
"""Returns a function that says whether all requests have ended that had begun by this moment."""


class Submission(msgspec.Struct, frozen=True):
    """A model to run on inputs that have been checked.

    Attributes:
        origin: Where it comes from, with the story of its execution; None: it is not recorded.
        recorder: Gets its record when it has ended, if it has an origin.
        facts: Returns what code may know of it besides its terms; None: nothing.
        body: The memory that already holds inputs, if any. The submitter drops it.
        effect_begins: Called before the request may have an effect that must not be repeated, perhaps several times, and never
            once it was cancelled; None: nobody asks.
    """

    model: ModelKey
    inputs: Sequence[Array]
    statics: tuple[StaticValue, ...] = ()
    terms: Terms = Terms()
    origin: Origin | None = None
    body: ArenaBody | None = None
    recorder: RequestRecorder | None = None
    facts: Callable[[], RequestFacts] | None = None
    effect_begins: Callable[[], None] | None = None
