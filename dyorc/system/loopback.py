"""Which addresses only this machine reaches. Whoever listens elsewhere needs keys, or TLS. Only the standard library."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches an address. A name counts as reachable by others, except ``localhost``."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False
