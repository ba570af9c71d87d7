"""Requests of gateways that do not answer: put aside until they do, so that they hold up nobody else.

For the event loop's thread. The orchestrator has forgotten such a request, and asks for it anew. Its gateway is not told: for it,
nothing has happened.
"""

from collections.abc import Callable, Sequence

from dyorc.remote.guests import Guest, Wanted
from dyorc.tensor import blocks_of


class Aside:
    """Those that were put aside.

    Args:
        free: Tells a gateway that nobody reads a block of its any more.
    """

    def __init__(self, free: Callable[[Guest, int], None]) -> None:
        self._free = free
        self._requests: dict[tuple[Guest, int], list[Wanted]] = {}
        self._withheld: dict[Wanted, set[int]] = {}

    def put(self, guest: Guest, number: int, requests: Sequence[Wanted]) -> None:
        """Puts requests aside until their gateway answers the announcement of this number."""
        self._requests[guest, number] = list(requests)
        self._withheld |= {wanted: set[int]() for wanted in requests}

    def is_silent(self, guest: Guest) -> bool:
        """Returns whether requests of a gateway are put aside."""
        return any(silent is guest for silent, _ in self._requests)

    def take(self, guest: Guest, number: int) -> list[Wanted]:
        """Returns the requests that were put aside for an announcement which is answered now."""
        found = self._requests.pop((guest, number), [])
        return [wanted for wanted in found if self._withheld.pop(wanted, None) is not None]

    def withholds(self, guest: Guest, block: int) -> bool:
        """Returns whether a request that is put aside needs a block, which nobody else reads any more."""
        needing = [one for one in self._withheld if one.guest is guest and _needs(one, block)]
        for wanted in needing:
            self._withheld[wanted].add(block)
        return bool(needing)

    def drop(self, wanted: Wanted) -> None:
        """Forgets a request that nobody wants any more."""
        for block in self._withheld.pop(wanted, ()):
            self._free(wanted.guest, block)

    def gone(self, guest: Guest) -> None:
        """Forgets a gateway."""
        for key in [key for key in self._requests if key[0] is guest]:
            for wanted in self._requests.pop(key):
                self._withheld.pop(wanted, None)


def _needs(wanted: Wanted, block: int) -> bool:
    return (wanted.guest.gateway_id, block) in blocks_of(wanted.arrived.inputs)
