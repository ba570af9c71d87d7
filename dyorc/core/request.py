"""Contracts about a request: the terms on which it is served, and the object that gets its answer."""

from typing import Protocol, TypeVar

import msgspec

from dyorc.core.arrays import Array


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


SHADOW_TENANT = "(shadow)"
"""The tenant of copies of requests; no key's tenant can have this name."""


def counted_name(workflow: str, terms: Terms) -> str:
    """Returns the name under which a request of a workflow is counted."""
    return f"{workflow} (shadow)" if terms.is_shadow else workflow


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
