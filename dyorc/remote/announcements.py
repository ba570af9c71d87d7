"""Effects that have been announced to gateways, until these say that they know. For the event loop's thread."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count

from dyorc.remote.guests import Guest
from dyorc.remote.messages import EffectAhead


class Announcements:
    """Waits for gateways that have been told.

    Args:
        send: Sends a gateway a message.
    """

    def __init__(self, send: Callable[[Guest, EffectAhead], None]) -> None:
        self._send = send
        self._numbers = count(1)
        self._waiting: dict[int, tuple[set[Guest], Callable[[bool], None]]] = {}

    def announce(self, concerned: Mapping[Guest, Sequence[int]], go: Callable[[bool], None]) -> None:
        """Tells gateways which of their requests have an effect, and calls `go` once all know, or one of them is gone."""
        if not concerned:
            go(True)
            return
        number = next(self._numbers)
        self._waiting[number] = (set(concerned), go)
        for guest, requests in concerned.items():
            self._send(guest, EffectAhead(number, tuple(requests)))

    def known(self, guest: Guest, number: int) -> None:
        """Notes that a gateway knows."""
        waiting = self._waiting.get(number)
        if waiting is None:
            return
        guests, go = waiting
        guests.discard(guest)
        if not guests:
            del self._waiting[number]
            go(True)

    def gone(self, guest: Guest) -> None:
        """Notes that a gateway is gone. It may ask again, so what it did not know of must not happen."""
        for number in [number for number, (guests, _) in self._waiting.items() if guest in guests]:
            _, go = self._waiting.pop(number)
            go(False)
