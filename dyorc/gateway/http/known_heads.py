"""Heads of direct requests, as they were sent: clients send the same bytes again and again, so they are parsed once."""

from typing import NamedTuple

from dyorc.gateway.http.direct import Route
from dyorc.gateway.http.request_parser import ParsedHead

_MAX_HEADS = 1024
"""Clients that write something else into each head must not fill the memory."""
MAX_HEAD_BYTES = 2048


class KnownHead(NamedTuple):
    """A head that was parsed before.

    Attributes:
        num_bytes: Of the whole request, with its body.
    """

    head: ParsedHead
    route: Route
    num_bytes: int


class KnownHeads:
    """The heads that one server has seen of late: two generations, of which the older is dropped when the younger is full."""

    def __init__(self) -> None:
        self._young: dict[bytes, KnownHead] = {}
        self._old: dict[bytes, KnownHead] = {}

    def find(self, raw: bytes) -> KnownHead | None:
        """Returns what these bytes say, if that is known."""
        return self._young.get(raw) or self._old.get(raw)

    def add(self, raw: bytes, known: KnownHead) -> None:
        """Keeps what these bytes say."""
        if len(self._young) >= _MAX_HEADS:
            self._old, self._young = self._young, {}
        self._young[raw] = known
