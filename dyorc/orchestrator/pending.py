"""Requests in flight: what the orchestrator keeps of each until its receiver has the answer. For the event loop's thread."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dyorc.orchestrator.identity import InputsIdentity
from dyorc.orchestrator.part_stream import PartStream
from dyorc.orchestrator.recorded import Recorded
from dyorc.receiver import Receiver
from dyorc.tensor import TensorRef


@dataclass(slots=True, eq=False)
class RequestInFlight:
    """A request in flight.

    Attributes:
        recorded: What is written down about it, if anything is.
        stream: Gets its parts, if it has any.
        stored: Outputs that the receiver is taking, if their bytes are stored.
        is_untaken: Whether the engine keeps those bytes until it is told that they have been taken.
        is_taking: Whether the receiver is taking large outputs on a thread; until that ends, their memory must stay.
    """

    receiver: Receiver[Any]
    identity: InputsIdentity
    recorded: Recorded | None = None
    stream: PartStream | None = None
    stored: Sequence[TensorRef] = ()
    is_untaken: bool = False
    is_taking: bool = False
