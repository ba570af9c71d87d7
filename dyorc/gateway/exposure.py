"""Which addresses a server may listen on: beyond this machine only if something keeps strangers out. For HTTP and gRPC."""

from dyorc.config import GatewayConfig
from dyorc.errors import ConfigurationError
from dyorc.system.loopback import is_loopback


def refuse_open_address(config: GatewayConfig) -> None:
    """Checks that the server may listen on `config.host`.

    Raises:
        ConfigurationError: If other machines would reach it and nothing is asked of them. Names the ways out.
    """
    if config.keys_file or config.tls_client_roots_file or config.allow_open or is_loopback(config.host):
        return
    raise ConfigurationError(
        f"{config.host!r} is not a loopback address: anyone who can reach it could use the server. Either ask for API keys "
        "(gateway.keys_file; `dyorc keys add` makes them), or for client certificates (gateway.tls_client_roots_file), or, if "
        "something else keeps strangers out, say so (gateway.allow_open, --allow-open)"
    )
