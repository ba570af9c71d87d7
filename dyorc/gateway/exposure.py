"""Which addresses a server may listen on: beyond this machine only where something keeps strangers out. For HTTP and gRPC."""

import ipaddress

from dyorc.config import GatewayConfig
from dyorc.errors import ConfigurationError


def refuse_open_address(config: GatewayConfig) -> None:
    """Does nothing if the server may listen on `config.host`.

    Raises:
        ConfigurationError: If others than this machine's users would reach it, and nothing is asked of them. Names the ways out.
    """
    if config.keys_file or config.tls_client_roots_file or config.allow_open or is_loopback(config.host):
        return
    raise ConfigurationError(
        f"{config.host!r} is no loopback address, and whoever reaches it could use the server. Either ask for API keys "
        "(gateway.keys_file; `dyorc keys add` makes them), or for client certificates (gateway.tls_client_roots_file), or, if "
        "something else keeps strangers out, say so (gateway.allow_open, --allow-open)"
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address. A name counts as one that others reach, but for ``localhost``."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False
