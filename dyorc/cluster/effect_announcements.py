"""Announces side effects to gateways before they happen, and waits for their acknowledgements. For the event loop's thread.

If a gateway does not answer, its requests are suspended until it does, so that they do not delay the requests of others. The
orchestrator forgets a suspended request and submits it again later; its gateway does not notice.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from dyorc.cluster.cluster_messages import EffectAhead
from dyorc.cluster.gateway_sessions import GatewaySession, RemoteRequest
from dyorc.core.tensor import blocks_of


class SuspendedRequests:
    """Requests of gateways that do not answer, until they do.

    Args:
        free: Tells a gateway that one of its blocks is no longer read.
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
        requests = self._requests.pop((session, number), [])
        return [wanted for wanted in requests if self._withheld.pop(wanted, None) is not None]

    def withholds(self, session: GatewaySession, block: int) -> bool:
        """Returns whether a suspended request needs a block that nothing else reads."""
        needing = [one for one in self._withheld if one.session is session and _needs(one, block)]
        for wanted in needing:
            self._withheld[wanted].add(block)
        return bool(needing)

    def drop(self, wanted: RemoteRequest) -> None:
        """Drops a suspended request that was cancelled."""
        for block in self._withheld.pop(wanted, ()):
            self._free(wanted.session, block)

    def gone(self, session: GatewaySession) -> None:
        """Forgets a gateway."""
        for key in [key for key in self._requests if key[0] is session]:
            for wanted in self._requests.pop(key):
                self._withheld.pop(wanted, None)


def _needs(wanted: RemoteRequest, block: int) -> bool:
    return (wanted.session.gateway_id, block) in blocks_of(wanted.arrived.inputs)


PATIENCE_S = 0.5
"""For so long, one gateway that does not answer holds up a batch with requests of others."""


@dataclass(slots=True)
class _AnnouncedEffect:
    silent: dict[GatewaySession, Sequence[RemoteRequest]]
    requests: list[RemoteRequest]
    go: Callable[[bool], None]
    timer: asyncio.TimerHandle | None = None


class EffectAnnouncements:
    """Announces effects, and waits until gateways acknowledge them.

    Args:
        send: Sends a gateway a message.
        aside: Keeps requests of gateways that do not answer.
        give_up: Removes a suspended request from the engine.
        ask_again: Submits it again.
    """

    def __init__(
        self,
        send: Callable[[GatewaySession, EffectAhead], None],
        aside: SuspendedRequests,
        give_up: Callable[[RemoteRequest], None],
        ask_again: Callable[[RemoteRequest], None],
    ) -> None:
        self._send = send
        self._aside = aside
        self._give_up_request = give_up
        self._ask_again = ask_again
        self._numbers = count(1)
        self._announced: dict[int, _AnnouncedEffect] = {}

    def announce(self, concerned: Mapping[GatewaySession, Sequence[RemoteRequest]], go: Callable[[bool], None]) -> None:
        """Tells gateways which of their requests have an effect.

        Calls `go` with True once all know; with False if one of them is gone, or does not answer: its requests are put aside, and
        the batch has to be formed again.
        """
        if not concerned:
            go(True)
            return
        number = next(self._numbers)
        requests = [wanted for each in concerned.values() for wanted in each]
        announced = self._announced[number] = _AnnouncedEffect(dict(concerned), requests, go)
        for session, of_session in concerned.items():
            self._send(session, EffectAhead(number, tuple(wanted.request_id for wanted in of_session)))
        patience_s = 0.0 if any(self._aside.is_silent(session) for session in concerned) else PATIENCE_S
        announced.timer = asyncio.get_running_loop().call_later(patience_s, self._lose_patience, number)

    def known(self, session: GatewaySession, number: int) -> None:
        """Notes that a gateway knows."""
        for wanted in self._aside.take(session, number):
            self._ask_again(wanted)
        announced = self._announced.get(number)
        if announced is None:
            return
        announced.silent.pop(session, None)
        if not announced.silent:
            self._end(number)
            is_as_formed = all(wanted.is_running for wanted in announced.requests)  # one that was put aside runs again
            for wanted in announced.requests:
                wanted.has_effect |= is_as_formed
            announced.go(is_as_formed)

    def _lose_patience(self, number: int) -> None:
        """Puts the requests aside whose gateways do not answer, unless one of them cannot begin again."""
        unheard = self._announced[number].silent
        sessions = [session for session in unheard if self._aside.is_silent(session)] or list(unheard)
        silent = {session: [wanted for wanted in unheard[session] if wanted.is_running] for session in sessions}
        if not all(wanted.can_begin_again for requests in silent.values() for wanted in requests):
            return
        announced = self._end(number)
        for session, requests in silent.items():
            self._aside.put(session, number, requests)
            for wanted in requests:
                wanted.is_running = False
                self._give_up_request(wanted)
        announced.go(False)

    def gone(self, session: GatewaySession) -> None:
        """Notes that a gateway is gone. It may ask again, so what it did not know of must not happen."""
        self._aside.gone(session)
        for number in [number for number, announced in self._announced.items() if session in announced.silent]:
            self._end(number).go(False)

    def _end(self, number: int) -> _AnnouncedEffect:
        announced = self._announced.pop(number)
        if announced.timer is not None:
            announced.timer.cancel()
        return announced
