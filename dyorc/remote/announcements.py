"""Effects that have been announced to gateways, until these say that they know. For the event loop's thread."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from dyorc.remote.aside import Aside
from dyorc.remote.guests import Guest, Wanted
from dyorc.remote.messages import EffectAhead

PATIENCE_S = 0.5
"""For so long, one gateway that does not answer holds up a batch with requests of others."""


@dataclass(slots=True)
class _Announced:
    silent: dict[Guest, Sequence[Wanted]]
    requests: list[Wanted]
    go: Callable[[bool], None]
    timer: asyncio.TimerHandle | None = None


class Announcements:
    """Waits for gateways that have been told.

    Args:
        send: Sends a gateway a message.
        aside: Keeps requests of gateways that do not answer.
        give_up: Has the orchestrator forget a request that is put aside.
        ask_again: Has it run after all.
    """

    def __init__(
        self,
        send: Callable[[Guest, EffectAhead], None],
        aside: Aside,
        give_up: Callable[[Wanted], None],
        ask_again: Callable[[Wanted], None],
    ) -> None:
        self._send = send
        self._aside = aside
        self._give_up_request = give_up
        self._ask_again = ask_again
        self._numbers = count(1)
        self._announced: dict[int, _Announced] = {}

    def announce(self, concerned: Mapping[Guest, Sequence[Wanted]], go: Callable[[bool], None]) -> None:
        """Tells gateways which of their requests have an effect.

        Calls `go` with True once all know; with False if one of them is gone, or does not answer: its requests are put aside, and
        the batch has to be formed again.
        """
        if not concerned:
            go(True)
            return
        number = next(self._numbers)
        requests = [wanted for each in concerned.values() for wanted in each]
        announced = self._announced[number] = _Announced(dict(concerned), requests, go)
        for guest, of_guest in concerned.items():
            self._send(guest, EffectAhead(number, tuple(wanted.request_id for wanted in of_guest)))
        patience_s = 0.0 if any(self._aside.is_silent(guest) for guest in concerned) else PATIENCE_S
        announced.timer = asyncio.get_running_loop().call_later(patience_s, self._lose_patience, number)

    def known(self, guest: Guest, number: int) -> None:
        """Notes that a gateway knows."""
        for wanted in self._aside.take(guest, number):
            self._ask_again(wanted)
        announced = self._announced.get(number)
        if announced is None:
            return
        announced.silent.pop(guest, None)
        if not announced.silent:
            self._end(number)
            is_as_formed = all(wanted.is_running for wanted in announced.requests)  # one that was put aside runs again
            for wanted in announced.requests:
                wanted.has_effect |= is_as_formed
            announced.go(is_as_formed)

    def _lose_patience(self, number: int) -> None:
        """Puts the requests aside whose gateways do not answer, unless one of them cannot begin again."""
        unheard = self._announced[number].silent
        guests = [guest for guest in unheard if self._aside.is_silent(guest)] or list(unheard)
        silent = {guest: [wanted for wanted in unheard[guest] if wanted.is_running] for guest in guests}
        if not all(wanted.can_begin_again for requests in silent.values() for wanted in requests):
            return
        announced = self._end(number)
        for guest, requests in silent.items():
            self._aside.put(guest, number, requests)
            for wanted in requests:
                wanted.is_running = False
                self._give_up_request(wanted)
        announced.go(False)

    def gone(self, guest: Guest) -> None:
        """Notes that a gateway is gone. It may ask again, so what it did not know of must not happen."""
        self._aside.gone(guest)
        for number in [number for number, one in self._announced.items() if guest in one.silent]:
            self._end(number).go(False)

    def _end(self, number: int) -> _Announced:
        announced = self._announced.pop(number)
        if announced.timer is not None:
            announced.timer.cancel()
        return announced
