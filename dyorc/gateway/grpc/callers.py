# pyright: basic
# grpcio ships no types.
"""Finds the tenant of a call by its metadata."""

from typing import Any

from dyorc.gateway.access import Access
from dyorc.gateway.tenants import Tenant
from dyorc.protocol.header_names import API_KEY, AUTHORIZATION


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
