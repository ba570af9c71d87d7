"""The gateways at an orchestrator's desk, and what each of them wants. For the event loop's thread."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dyorc.engine.events import RequestArrived
from dyorc.engine.story import RequestTrace
from dyorc.orchestrator.identity import InputsIdentity
from dyorc.remote.messages import Hail


@dataclass(frozen=True, slots=True, eq=False)
class Guest:
    """A gateway.

    Attributes:
        peer: Its connection.
        numbers: The orchestrator's numbers of its requests, by its own.
    """

    peer: bytes
    gateway_id: str
    numbers: dict[int, int] = field(default_factory=dict[int, int])


@dataclass(slots=True, eq=False)
class Wanted:
    """A request of a gateway's.

    Attributes:
        request_id: The gateway's number for it.
        arrived: The request as the engine has it.
        identity: That of its inputs.
        has_effect: Whether it may have had an effect that must not be had twice.
        is_running: Whether the engine has it: it was not answered, cancelled, or put aside.
    """

    guest: Guest
    request_id: int
    arrived: RequestArrived
    identity: InputsIdentity
    has_effect: bool = False
    is_running: bool = True

    @property
    def number(self) -> int:
        """The orchestrator's number for it."""
        return self.arrived.request_id

    @property
    def story(self) -> RequestTrace | None:
        """What happens to it, if its gateway wants to know."""
        return self.arrived.story

    @property
    def can_begin_again(self) -> bool:
        """Whether it may be run once more. Its gateway would mistake parts of the first run for those of the second."""
        return not self.has_effect and not self.arrived.workflow.is_streaming


class Guests:
    """All of them."""

    def __init__(self) -> None:
        self._guests: dict[bytes, Guest] = {}
        self._wanted: dict[int, Wanted] = {}

    def all(self) -> Sequence[Guest]:
        """Returns the gateways that are connected."""
        return list(self._guests.values())

    def of_peer(self, peer: bytes) -> Guest | None:
        """Returns the gateway at a connection."""
        return self._guests.get(peer)

    def named(self, gateway_id: str) -> Guest | None:
        """Returns the gateway of a name."""
        return next((guest for guest in self._guests.values() if guest.gateway_id == gateway_id), None)

    def add(self, peer: bytes, hail: Hail) -> Guest:
        """Adds a gateway."""
        guest = self._guests[peer] = Guest(peer, hail.gateway_id)
        return guest

    def remove(self, guest: Guest) -> None:
        """Removes a gateway that wants nothing any more."""
        self._guests.pop(guest.peer, None)

    def want(self, wanted: Wanted) -> None:
        """Notes a request."""
        wanted.guest.numbers[wanted.request_id] = wanted.number
        self._wanted[wanted.number] = wanted

    def wanted(self, number: int) -> Wanted | None:
        """Returns a request by the orchestrator's number."""
        return self._wanted.get(number)

    def done(self, guest: Guest, request_id: int) -> Wanted | None:
        """Forgets a request."""
        number = guest.numbers.pop(request_id, None)
        wanted = None if number is None else self._wanted.pop(number)
        if wanted is not None:
            wanted.identity.close()
            wanted.is_running = False
        return wanted
