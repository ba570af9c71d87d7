"""The contract of what keeps journals of requests."""

from typing import TYPE_CHECKING, Protocol

from dyorc.errors import DyOrcError

if TYPE_CHECKING:
    from dyorc.engine.model.request_tree import Request


class JournalKeeper(Protocol):
    """Keeps the journal of one request. Must not raise, nor change anything."""

    def ended(self, error: DyOrcError | None, now_ns: int) -> None:
        """Learns that the request is answered, or fails with this error. Its effects may go on."""
        ...

    def keep(self, request: "Request") -> None:
        """Reads the journal before the engine forgets it: all effects have ended."""
        ...
