"""Settings of the trace extension: shown to clients, who cannot change them, because others use the server too."""

from collections.abc import Mapping
from typing import Any

from dyorc.errors import UnsupportedError

TRACE_SETTINGS: dict[str, Any] = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}
"""Nothing is traced in the sense of this extension."""


def refuse_changes(asked: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Checks that settings are asked for as they are; null stands for the current value.

    Raises:
        UnsupportedError: If one is not; names it.
    """
    for name, value in asked.items():
        if value is not None and (name not in settings or value != settings[name]):
            shown = settings.get(name, "unknown")
            raise UnsupportedError(
                f"setting {name!r} cannot be changed by clients; it is {shown!r}, {str(value)[:40]!r} was asked for"
            )
