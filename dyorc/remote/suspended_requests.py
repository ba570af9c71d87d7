"""Requests of gateways that do not answer: put aside until they do, so that they hold up nobody else.

For the event loop's thread. The orchestrator has forgotten such a request, and asks for it anew. Its gateway is not told: for it,
nothing has happened.
"""

from collections.abc import Callable, Sequence

from dyorc.remote.gateway_sessions import GatewaySession, RemoteRequest
from dyorc.tensor import blocks_of


class SuspendedRequests:
    """Those that were put aside.

    Args:
        free: Tells a gateway that nobody reads a block of its any more.
    """

    def __init__(self, free: Callable[[GatewaySession, int], None]) -> None:
        self._free = free
        self._requests: dict[tuple[GatewaySession, int], list[RemoteRequest]] = {}
        self._withheld: dict[RemoteRequest, set[int]] = {}

    def put(self, session: GatewaySession, number: int, requests: Sequence[RemoteRequest]) -> None:
        """Puts requests aside until their gateway answers the announcement of this number."""
        self._requests[session, number] = list(requests)
        self._withheld |= {wanted: set[int]() for wanted in requests}

    def is_silent(self, session: GatewaySession) -> bool:
        """Returns whether requests of a gateway are put aside."""
        return any(silent is session for silent, _ in self._requests)

    def take(self, session: GatewaySession, number: int) -> list[RemoteRequest]:
        """Returns the requests that were put aside for an announcement which is answered now."""
        found = self._requests.pop((session, number), [])
        return [wanted for wanted in found if self._withheld.pop(wanted, None) is not None]

    def withholds(self, session: GatewaySession, block: int) -> bool:
        """Returns whether a request that is put aside needs a block, which nobody else reads any more."""
        needing = [one for one in self._withheld if one.session is session and _needs(one, block)]
        for wanted in needing:
            self._withheld[wanted].add(block)
        return bool(needing)

    def drop(self, wanted: RemoteRequest) -> None:
        """Forgets a request that nobody wants any more."""
        for block in self._withheld.pop(wanted, ()):
            self._free(wanted.session, block)

    def gone(self, session: GatewaySession) -> None:
        """Forgets a gateway."""
        for key in [key for key in self._requests if key[0] is session]:
            for wanted in self._requests.pop(key):
                self._withheld.pop(wanted, None)


def _needs(wanted: RemoteRequest, block: int) -> bool:
    return (wanted.session.gateway_id, block) in blocks_of(wanted.arrived.inputs)
