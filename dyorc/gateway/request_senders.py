"""What code may know of the request for which it runs, from ids and headers (`dyorc.request`). Made only when it is asked for."""

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from dyorc.core.request import RequestFacts
from dyorc.gateway.request_ids import Ids
from dyorc.protocol.header_names import Header


class RequestSender(Protocol):
    """What a shell knows of the request that it has read."""

    @property
    def ids(self) -> Ids:
        """By which it is known."""
        ...

    @property
    def sent_headers(self) -> Iterable[Header]:
        """Its headers, with names in lower case, or the metadata of its call."""
        ...


class KnownSender(NamedTuple):
    """A sender whose ids and headers are known beforehand."""

    ids: Ids
    sent_headers: Iterable[Header] = ()


def facts_of(sender: RequestSender, shown: Collection[bytes]) -> RequestFacts:
    """Returns what code may know of a request.

    Args:
        shown: The names of headers that it may see. Of several headers of one name, the values are joined, as HTTP has it.
    """
    ids = sender.ids
    headers: dict[str, str] = {}
    for name, value in sender.sent_headers if shown else ():
        if name in shown:
            key, text = name.decode("latin-1"), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return RequestFacts(ids.request_id, ids.span, tuple(headers.items()))
