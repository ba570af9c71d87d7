"""What this process logs, in the form of the protocol's logging extension; clients with a managing key may change it.

Source: triton-inference-server/server, docs/protocol/extension_logging.md. The extension has a switch for each level; here each
level includes the more important ones, so switching one on switches those on, and switching one off the less important ones off.

The settings of the trace extension are only shown: no client may change them, because others use the server too.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from dyorc.config import LogsConfig
from dyorc.errors import InvalidInputError, UnsupportedError
from dyorc.telemetry import logs
from dyorc.telemetry.recording import Recording
from dyorc.telemetry.request_log import RequestLog, Which

_LEVELS = ("debug", "info", "warning", "error")
_SWITCHES = {"log_verbose_level": 0, "log_info": 1, "log_warning": 2, "log_error": 3}
"""Settings of the extension, with the index of the level that each switches."""
_FORMATS = {"default": "console", "json": "json"}


class _LogChanges(msgspec.Struct, kw_only=True):
    """Changes that a client asks for; null means the current value."""

    log_file: str | None = None
    log_info: bool | None = None
    log_warning: bool | None = None
    log_error: bool | None = None
    log_verbose_level: int | None = None
    log_format: Literal["default", "json"] | None = None
    log_requests: Which | None = None


class LogControl:
    """Holds the settings and applies changes.

    Args:
        config: The settings at the start.
        requests: Writes lines about requests.
        recording: Provides its records.
        tell: Called with changed settings, which concern replicas in other processes too.
    """

    def __init__(
        self, config: LogsConfig, requests: RequestLog, recording: Recording, tell: Callable[[LogsConfig], None]
    ) -> None:
        self._config = config
        self._requests = requests
        self._recording = recording
        self._tell = tell
        self._follow()

    def settings(self) -> dict[str, Any]:
        level, formats = _LEVELS.index(self._config.level), {ours: theirs for theirs, ours in _FORMATS.items()}
        return {
            "log_file": "",
            "log_info": level <= 1,
            "log_warning": level <= 2,
            "log_error": True,
            "log_verbose_level": int(level == 0),
            "log_format": formats[self._config.format],
            "log_requests": self._config.requests,
        }

    def changed(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the settings that a client asks for, for `apply`.

        Raises:
            InvalidInputError: If a value has the wrong type, or two contradict each other.
            UnsupportedError: If a setting does not exist or cannot be changed.
        """
        known = self.settings()
        if unknown := [name for name, value in changes.items() if value is not None and name not in known]:
            raise UnsupportedError(f"unknown setting {unknown[0]!r}, expected one of {list(known)}")
        try:
            wanted = msgspec.convert(dict(changes), _LogChanges)
        except msgspec.ValidationError as error:
            raise InvalidInputError(f"the settings of the log: {error}") from None
        if wanted.log_file:
            raise UnsupportedError("setting 'log_file' cannot be changed: the server logs to its standard error")
        level = _level_of(wanted, _LEVELS.index(self._config.level))
        return {
            "level": _LEVELS[level],
            "format": _FORMATS[wanted.log_format] if wanted.log_format else self._config.format,
            "requests": wanted.log_requests or self._config.requests,
        }

    def apply(self, values: Mapping[str, Any]) -> None:
        """Applies settings: plain values, as `changed` returns them."""
        self._config = LogsConfig(**values)
        logs.change(self._config)
        self._follow()
        self._tell(self._config)

    def _follow(self) -> None:
        self._requests.which = self._config.requests
        self._recording.want_all(self._requests, is_wanted=self._config.requests != "off")


def _level_of(wanted: _LogChanges, level: int) -> int:
    switches = {name: getattr(wanted, name) for name in _SWITCHES}
    on = [index for name, index in _SWITCHES.items() if switches[name]]
    off = [index for name, index in _SWITCHES.items() if switches[name] is not None and not switches[name]]
    if len(_LEVELS) - 1 in off:
        raise UnsupportedError("setting 'log_error' cannot be switched off")
    switched = {index: index in on for index in (*on, *off)}
    if level in off or any(index > level for index in off):
        level = max(off) + 1
    if on:
        level = min(level, *on)
    for index, is_on in switched.items():
        if (level <= index) != is_on:
            raise InvalidInputError("settings of the log contradict each other: a level includes the more important ones")
    return level


TRACE_SETTINGS: dict[str, Any] = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}
"""Nothing is traced in the sense of this extension."""


def refuse_changes(changes: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Checks that a client asks for settings as they are; null means the current value.

    Raises:
        UnsupportedError: If it asks for another value.
    """
    for name, value in changes.items():
        if value is not None and (name not in settings or value != settings[name]):
            shown = settings.get(name, "unknown")
            raise UnsupportedError(
                f"setting {name!r} cannot be changed by clients; it is {shown!r}, {str(value)[:40]!r} was asked for"
            )
