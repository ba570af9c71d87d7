"""Announces side effects to gateways before they happen, and waits for their acknowledgements. Used on the event loop.

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

PATIENCE_S = 0.5
"""How long a gateway that does not answer may delay a batch with requests of other gateways."""


class SuspendedRequests:
    """Requests of gateways that do not answer, until they do.

    Args:
        free: Releases one of a gateway's blocks: nothing reads it now.
    """

    def __init__(self, free: Callable[[GatewaySession, int], None]) -> None:
        self._free = free
        self._requests: dict[tuple[GatewaySession, int], list[RemoteRequest]] = {}
        self._withheld: dict[RemoteRequest, set[int]] = {}

    def suspend(self, session: GatewaySession, number: int, requests: Sequence[RemoteRequest]) -> None:
        """Suspends requests until their gateway acknowledges the announcement with this number."""
        self._requests[session, number] = list(requests)
        self._withheld |= {request: set[int]() for request in requests}

    def is_silent(self, session: GatewaySession) -> bool:
        """Returns whether requests of a gateway are suspended."""
        return any(silent is session for silent, _ in self._requests)

    def resume(self, session: GatewaySession, number: int) -> list[RemoteRequest]:
        """Returns the requests that were suspended for an announcement; they may run again."""
        requests = self._requests.pop((session, number), [])
        return [request for request in requests if self._withheld.pop(request, None) is not None]

    def withholds(self, session: GatewaySession, block: int) -> bool:
        """Returns whether a suspended request needs a block that nothing else reads."""
        requests = [request for request in self._withheld if request.session is session and _needs(request, block)]
        for request in requests:
            self._withheld[request].add(block)
        return bool(requests)

    def drop(self, request: RemoteRequest) -> None:
        """Drops a suspended request that was cancelled."""
        for block in self._withheld.pop(request, ()):
            self._free(request.session, block)

    def drop_session(self, session: GatewaySession) -> None:
        """Forgets a gateway."""
        for key in [key for key in self._requests if key[0] is session]:
            for request in self._requests.pop(key):
                self._withheld.pop(request, None)


def _needs(request: RemoteRequest, block: int) -> bool:
    return (request.session.gateway_id, block) in blocks_of(request.arrived.inputs)


@dataclass(slots=True)
class _AnnouncedEffect:
    silent: dict[GatewaySession, Sequence[RemoteRequest]]
    requests: list[RemoteRequest]
    go: Callable[[bool], None]
    timer: asyncio.TimerHandle | None = None


class EffectAnnouncements:
    """Announces effects, and waits until gateways acknowledge them.

    Args:
        send: Sends a message to a gateway.
        suspended: Where requests of gateways that do not answer are kept.
        give_up: Removes a suspended request from the engine.
        submit_again: Submits it again.
    """

    def __init__(
        self,
        send: Callable[[GatewaySession, EffectAhead], None],
        suspended: SuspendedRequests,
        give_up: Callable[[RemoteRequest], None],
        submit_again: Callable[[RemoteRequest], None],
    ) -> None:
        self._send = send
        self._suspended = suspended
        self._give_up = give_up
        self._submit_again = submit_again
        self._numbers = count(1)
        self._announced: dict[int, _AnnouncedEffect] = {}

    def announce(self, concerned: Mapping[GatewaySession, Sequence[RemoteRequest]], go: Callable[[bool], None]) -> None:
        """Announces to gateways which of their requests have an effect.

        Calls `go` with True once all gateways have acknowledged; with False if one is gone or does not answer: its requests are
        suspended, and the batch must be formed again.
        """
        if not concerned:
            go(True)
            return
        number = next(self._numbers)
        requests = [request for each in concerned.values() for request in each]
        announced = self._announced[number] = _AnnouncedEffect(dict(concerned), requests, go)
        for session, of_session in concerned.items():
            self._send(session, EffectAhead(number, tuple(request.request_id for request in of_session)))
        patience_s = 0.0 if any(self._suspended.is_silent(session) for session in concerned) else PATIENCE_S
        announced.timer = asyncio.get_running_loop().call_later(patience_s, self._suspend_silent, number)

    def acknowledge(self, session: GatewaySession, number: int) -> None:
        """Notes a gateway's acknowledgement."""
        for request in self._suspended.resume(session, number):
            self._submit_again(request)
        announced = self._announced.get(number)
        if announced is None:
            return
        announced.silent.pop(session, None)
        if not announced.silent:
            self._end(number)
            is_as_formed = all(request.is_running for request in announced.requests)  # a suspended one runs again later
            for request in announced.requests:
                request.has_effect |= is_as_formed
            announced.go(is_as_formed)

    def _suspend_silent(self, number: int) -> None:
        """Suspends the requests of gateways that do not answer, unless one of these requests cannot begin again."""
        unanswered = self._announced[number].silent
        sessions = [session for session in unanswered if self._suspended.is_silent(session)] or list(unanswered)
        silent = {session: [request for request in unanswered[session] if request.is_running] for session in sessions}
        if not all(request.can_begin_again for requests in silent.values() for request in requests):
            return
        announced = self._end(number)
        for session, requests in silent.items():
            self._suspended.suspend(session, number, requests)
            for request in requests:
                request.is_running = False
                self._give_up(request)
        announced.go(False)

    def drop_session(self, session: GatewaySession) -> None:
        """Notes that a gateway is gone. It may submit its requests again, so effects that it did not know of must not happen."""
        self._suspended.drop_session(session)
        for number in [number for number, announced in self._announced.items() if session in announced.silent]:
            self._end(number).go(False)

    def _end(self, number: int) -> _AnnouncedEffect:
        announced = self._announced.pop(number)
        if announced.timer is not None:
            announced.timer.cancel()
        return announced
