"""What needs Linux says so, before it fails at the first call that another system lacks."""

import sys

from dyorc.errors import ConfigurationError


def require_linux(feature: str, instead: str) -> None:
    """Does nothing on Linux.

    Args:
        feature: What needs it, with its verb, such as ``replicas on Ray need``.
        instead: What works here.

    Raises:
        ConfigurationError: On any other system.
    """
    if sys.platform != "linux":
        raise ConfigurationError(f"{feature} Linux, and this system is {sys.platform}: {instead}")
