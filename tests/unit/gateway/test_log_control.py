"""Which settings of the log clients can ask for, and what becomes of them."""

from typing import Any

import pytest

from dyorc.config import LogsConfig, RecordsConfig
from dyorc.errors import InvalidInputError, UnsupportedError
from dyorc.gateway.codec.http_errors import status_of_outcome
from dyorc.gateway.log_control import LogControl
from dyorc.telemetry.recording import Recording
from dyorc.telemetry.request_log import RequestLog

_VERBOSE, _NOT_VERBOSE = {"log_verbose_level": 1}, {"log_verbose_level": 0}


def _control(**settings: Any) -> tuple[LogControl, Recording, list[LogsConfig]]:
    recording, told = Recording(RecordsConfig()), list[LogsConfig]()
    control = LogControl(LogsConfig(**settings), RequestLog("off", 1.0, status_of_outcome), recording, told.append)
    return control, recording, told


@pytest.mark.parametrize(
    ("before", "asked", "after"),
    [
        ("warning", _VERBOSE, "debug"),
        ("warning", {"log_info": True}, "info"),
        ("debug", _NOT_VERBOSE, "info"),
        ("debug", {"log_info": False}, "warning"),
        ("info", {"log_warning": False}, "error"),
        ("error", {"log_info": True, "log_verbose_level": 0}, "info"),
        ("warning", {"log_info": None}, "warning"),
        ("warning", {}, "warning"),
    ],
)
def test_switches_stand_for_levels(before: str, asked: dict[str, Any], after: str) -> None:
    control, _, _ = _control(level=before)
    assert control.changed(asked)["level"] == after


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_asking_for_what_is_shown_changes_nothing(level: str) -> None:
    control, _, _ = _control(level=level, format="json", requests="slow")
    assert control.changed(control.settings()) == {"level": level, "format": "json", "requests": "slow"}


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({"log_info": "yes"}, InvalidInputError),
        ({"log_requests": "some"}, InvalidInputError),
        ({"log_verbose_level": 1, "log_info": False}, InvalidInputError),
        ({"log_error": False}, UnsupportedError),
        ({"log_file": "/etc/passwd"}, UnsupportedError),
        ({"log_color": "red"}, UnsupportedError),
    ],
)
def test_what_cannot_be_is_refused(asked: dict[str, Any], kind: type[Exception]) -> None:
    control, _, _ = _control()
    with pytest.raises(kind, match=next(iter(asked)) if kind is UnsupportedError else "the log"):
        control.changed(asked)


def test_all_requests_are_recorded_while_lines_are_asked_for_and_replicas_are_told() -> None:
    control, recording, told = _control()
    assert not recording.wants()
    control.apply(control.changed({"log_requests": "errors", "log_format": "json"}))
    assert recording.wants()
    assert told == [LogsConfig(format="json", requests="errors")]
    control.apply(control.changed({"log_requests": "off"}))
    assert not recording.wants()
