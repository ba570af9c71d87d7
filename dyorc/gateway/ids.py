"""The ids by which one request is known."""

import itertools
import secrets

import msgspec

from dyorc.core.trace_context import TraceContext
from dyorc.telemetry.record import Origin

_MAX_ID_CHARS = 128
_THIS_PROCESS = secrets.token_hex(4)
_numbers = itertools.count(1)


class Ids(msgspec.Struct, eq=False):
    """Of one request.

    Attributes:
        request_id: Its client's, or one made up.
        trace_id: Of its trace; empty if it has none.
        caller: The caller's span, if it sent one.
        is_given: Whether `request_id` is its client's.
        origin: Where it came from, if it is recorded.
        is_left_out: Whether it was decided that it is not recorded, however it ends.
    """

    request_id: str
    trace_id: str = ""
    is_given: bool = False
    origin: Origin | None = None
    caller: TraceContext | None = None
    is_left_out: bool = False

    @classmethod
    def made_up(cls) -> "Ids":
        """Returns those of a request of which nothing is known."""
        return cls(new_request_id())

    def name(self, request_id: str) -> None:
        """Takes the id in the request's body, if it can be used. It goes before a header's, which a proxy may have added."""
        if request_id := usable(request_id):
            self.request_id, self.is_given = request_id, True

    @property
    def was_submitted(self) -> bool:
        """Whether it was handed to the orchestrator, as far as it is recorded."""
        return self.origin is not None and self.origin.story is not None

    @property
    def facts(self) -> dict[str, str]:
        """What a line of a log says."""
        return {"request_id": self.request_id} | ({"trace_id": self.trace_id} if self.trace_id else {})


def new_request_id() -> str:
    """Returns an id for a request whose client gave none. No other process of any server makes the same."""
    return f"{_THIS_PROCESS}-{next(_numbers):x}"


def usable(request_id: str) -> str:
    """Returns a client's id; empty if it cannot stand in a header and in a line of a log."""
    is_usable = len(request_id) <= _MAX_ID_CHARS and request_id.isascii() and request_id.isprintable()
    return request_id if is_usable else ""
