"""Heads of requests that were read before: clients send the same ones again and again."""

from collections.abc import Hashable
from typing import Generic, TypeVar

Sent = TypeVar("Sent", bound=Hashable)
Head = TypeVar("Head")

_MAX_HEADS = 1024
"""Clients that write something else into each head must not fill the memory."""


class KnownHeads(Generic[Sent, Head]):
    """What was read of heads, as they were sent, so that each is read once.

    There are two generations; the older is dropped when the younger is full.
    """

    def __init__(self) -> None:
        self._young: dict[Sent, Head] = {}
        self._old: dict[Sent, Head] = {}

    def find(self, sent: Sent) -> Head | None:
        """Returns what was read of a head, if it is known."""
        return self._young.get(sent) or self._old.get(sent)

    def add(self, sent: Sent, head: Head) -> None:
        """Keeps what was read of a head."""
        if len(self._young) >= _MAX_HEADS:
            self._old, self._young = self._young, {}
        self._young[sent] = head
