"""What the server says of itself, in any protocol."""

from typing import Any

from dyorc.gateway.client_memory import ClientMemory
from dyorc.version import version

_EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "generate",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "statistics",
)


def server_metadata(clients: ClientMemory) -> dict[str, Any]:
    """Returns name, version, and the supported protocol extensions. Clients ask for statistics only if they are listed."""
    extensions = [*_EXTENSIONS, *(["system_shared_memory"] if clients.is_allowed else [])]
    return {"name": "dyorc", "version": version(), "extensions": extensions}
