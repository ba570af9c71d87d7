"""Contracts about a request: the terms on which it is served, what code may know of it, and the object that gets its answer."""

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from dyorc.core.arrays import Array
from dyorc.core.trace_context import TraceContext


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a request may ask of the server, apart from its inputs. Set on admission and passed on unchanged to the engine.

    Attributes:
        deadline_ns: When the answer must be ready, on the monotonic clock; None: the engine's default applies.
        priority: 1 is the highest; 0 means none, and comes last.
        tenant: The tenant that sent it; empty without tenants.
        weight: The tenant's share of every queue, relative to the others waiting there.
        waits_for_effects: Whether the answer must come after all effects of the request, even if its workflow does not ask so.
        is_shadow: Whether it is a copy of a request, whose answer nobody sees: it is refused where it would have to wait, and
            counted apart.
    """

    deadline_ns: int | None = None
    priority: int = 0
    tenant: str = ""
    weight: float = 1.0
    waits_for_effects: bool = False
    is_shadow: bool = False


NO_DEADLINE_NS = 2**62
"""A deadline that never comes, for requests that have none."""

SHADOW_TENANT = "(shadow)"
"""The tenant of copies of requests; no key's tenant can have this name."""


def counted_name(workflow: str, terms: Terms) -> str:
    """Returns the name under which a request of a workflow is counted."""
    return shadow_name(workflow) if terms.is_shadow else workflow


def shadow_name(workflow: str) -> str:
    """Returns the name under which copies of a workflow's requests are counted."""
    return f"{workflow} (shadow)"


class RequestClient(msgspec.Struct, frozen=True, array_like=True):
    """Who sent a request, and with which priority."""

    tenant: str
    priority: int


class RequestFacts(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a request besides its terms and inputs.

    Attributes:
        request_id: As its client knows it.
        trace: Its span, or its caller's if it has none.
        headers: The ones that the settings choose, with names in lower case.
        client: Who sent the request, if it is a copy, whose own terms are others; None: its terms say so.
    """

    request_id: str = ""
    trace: TraceContext | None = None
    headers: tuple[tuple[str, str], ...] = ()
    client: RequestClient | None = None


class RequestInfo(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The request for which code runs; `dyorc.request` returns it. Read-only.

    Attributes:
        id: As its client knows it: given by the client (``X-Request-Id``, or in its body), or generated.
        tenant: Who sent it; empty without keys.
        priority: 1 is the highest; 0 means none.
        trace: Its place in a trace: its own span, or that of its caller; None if it has none.
    """

    id: str = ""
    tenant: str = ""
    priority: int = 0
    trace: TraceContext | None = None
    _headers: tuple[tuple[str, str], ...] = ()
    _deadline_ns: int | None = None

    @classmethod
    def of(cls, facts: RequestFacts, terms: Terms, deadline_ns: int | None) -> "RequestInfo":
        """Returns what code may know of a request with a deadline on the monotonic clock."""
        client = facts.client or terms
        return cls(
            id=facts.request_id, tenant=client.tenant, priority=client.priority, trace=facts.trace, _headers=facts.headers,
            _deadline_ns=deadline_ns,
        )  # fmt: skip

    def __repr__(self) -> str:
        return (
            f"RequestInfo(id={self.id!r}, tenant={self.tenant!r}, priority={self.priority}, trace={self.trace!r}, "
            f"headers={dict(self._headers)!r})"
        )

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of its HTTP request, or metadata of its gRPC call, as far as the setting ``gateway.shown_headers`` names them;
        their names are in lower case."""
        return MappingProxyType(dict(self._headers))

    @property
    def deadline_s(self) -> float | None:
        """When its answer must be ready, in Unix time; None: at no time. A clock: not for a workflow's decisions."""
        return None if self._deadline_ns is None else time.time() + (self._deadline_ns - time.monotonic_ns()) / 1e9

    @property
    def left_s(self) -> float | None:
        """How many seconds are left, at least 0; None: it has no deadline. A clock: not for a workflow's decisions."""
        return None if self._deadline_ns is None else max(0.0, (self._deadline_ns - time.monotonic_ns()) / 1e9)


def shifted(requests: Sequence[RequestInfo], by_ns: int) -> tuple[RequestInfo, ...]:
    """Returns the same with deadlines on another clock: a message has them from its own time on, since machines' monotonic clocks
    differ."""
    return tuple(
        [
            info if info._deadline_ns is None else replace(info, _deadline_ns=info._deadline_ns + by_ns)  # pyright: ignore[reportPrivateUsage]
            for info in requests
        ]
    )


T = TypeVar("T")


class Receiver(Protocol[T]):
    """Turns a request's outputs into its answer. Called on the event loop, except where said otherwise."""

    def take(self, arrays: list[Array], /) -> T:
        """Turns the outputs, in the order of the workflow's signature, into the answer.

        They may be views of memory that is reused once this returns. Called on a thread if they are large, and a second time if
        their holder was lost meanwhile. An exception becomes the request's error.
        """
        ...

    def done(self, taken: T) -> None:
        """Takes the answer. Nothing follows it."""

    def failed(self, error: Exception) -> None:
        """Takes the error, if there is no answer. Nothing follows it."""
