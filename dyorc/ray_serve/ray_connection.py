# pyright: basic
# Ray ships no complete types.
"""A connection to a Ray cluster that somebody else runs, and to Serve on it.

It takes seconds, most of them imports, and needs no lead: an orchestrator that stands by connects ahead.
"""

import socket
import time

from dyorc.config import Settings
from dyorc.telemetry import logs

_MAX_ATTEMPTS = 20
_RETRY_S = 0.25


def connect(settings: Settings) -> None:
    """Connects, unless this process is connected already. Blocking."""
    import ray
    from ray import serve
    from ray.exceptions import ActorAlreadyExistsError

    if not ray.is_initialized():
        logs.adopt_ray()
        ray.init(
            address=settings.deployment.ray_address,
            log_to_driver=False,
            configure_logging=False,
            _node_ip_address=socket.gethostbyname(settings.link.host),
        )
    for num_left in reversed(range(_MAX_ATTEMPTS)):
        try:
            serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING"})
        except ActorAlreadyExistsError:  # another orchestrator has just started it: now it is found
            if not num_left:
                raise
            time.sleep(_RETRY_S)
        else:
            return


def disconnect() -> None:
    """Ends the connection; the cluster stays."""
    import ray

    if ray.is_initialized():
        ray.shutdown()
