# pyright: basic
# Ray ships no complete types.
"""A connection to a Ray cluster that somebody else runs, and to Serve on it.

It takes seconds, most of them imports, and needs no lead: an orchestrator that stands by connects ahead.
"""

import socket

from dyorc.config import Settings
from dyorc.telemetry import logs


def connect(settings: Settings) -> None:
    """Connects, unless this process is connected already. Blocking."""
    import ray
    from ray import serve

    if not ray.is_initialized():
        logs.adopt_ray()
        ray.init(
            address=settings.deployment.ray_address,
            log_to_driver=False,
            configure_logging=False,
            _node_ip_address=socket.gethostbyname(settings.link.host),
        )
    serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING"})


def disconnect() -> None:
    """Ends the connection; the cluster stays."""
    import ray

    if ray.is_initialized():
        ray.shutdown()
