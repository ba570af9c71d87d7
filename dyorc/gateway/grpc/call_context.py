# pyright: basic
# grpcio ships no types.
"""What the context of a gRPC call says: the caller's tenant, and how long the call may take.

gRPC counts a call's deadline on its own threads from when the call's first bytes came, however late the event loop is. It tells
only how much of that time is left.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from dyorc.gateway.access import Access
from dyorc.gateway.request_ids import Ids, headers_in_metadata
from dyorc.gateway.shedding import Shedding
from dyorc.gateway.tenants import Tenant
from dyorc.protocol.header_names import API_KEY, AUTHORIZATION, Header


def tenant_of(access: Access, context: Any) -> Tenant:
    """Returns the tenant of a call.

    Raises:
        AuthenticationError: If the call needs a key, and has none or a wrong one.
    """
    if access.is_open:  # reading metadata costs more than the rest of this
        return access.tenant_of(None)
    return access.tenant_of(_key_of(context.invocation_metadata() or ()))


def _key_of(metadata: Any) -> str | None:
    key = None
    for name, value in metadata:
        if not isinstance(value, str):
            continue
        if name == AUTHORIZATION and value[:7].lower() == "bearer ":
            return value[7:].strip()
        if name == API_KEY:
            key = value
    return key


def limit_s_of(context: Any, arrived_ns: int) -> float | None:
    """Returns how long a request may take, counted from `arrived_ns`; None without a deadline, 0 if the deadline has passed."""
    left_s = context.time_remaining()
    return left_s + (time.monotonic_ns() - arrived_ns) / 1e9 if left_s else left_s


def check_in_time(shedding: Shedding | None, context: Any, arrived_ns: int) -> None:
    """Checks that a request can be answered in time.

    Raises:
        DeadlineError: If its time is up.
        OverloadedError: If its time will be up before it can be answered.
    """
    if shedding is None:
        return
    refusal = shedding.refusal(arrived_ns, lambda: limit_s_of(context, arrived_ns))
    if refusal is not None:
        raise refusal


class CallSender(NamedTuple):
    """What `RequestSender` knows of a request by gRPC."""

    ids: Ids
    context: Any

    @property
    def sent_headers(self) -> Iterator[Header]:
        """The call's metadata."""
        return headers_in_metadata(self.context)
