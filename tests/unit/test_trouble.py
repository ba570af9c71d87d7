"""What is logged of a trouble that lasts: the first time, how often since, and its end."""

import structlog

from dyorc.system.log_throttle import PAUSE_S, LogThrottle

_log = structlog.get_logger("dyorc.test")


def test_a_trouble_is_logged_once_then_counted_and_its_end_is_logged() -> None:
    now_s = 0.0
    trouble = LogThrottle(_log, "disk_full", "disk_has_room", clock_s=lambda: now_s)
    with structlog.testing.capture_logs() as lines:
        trouble.end()
        for _ in range(500):
            trouble.report(job="first")
        now_s = PAUSE_S
        trouble.report(job="other")
        trouble.report(job="other")
        trouble.end()
        trouble.end()
    assert lines == [
        {"event": "disk_full", "job": "first", "log_level": "warning"},
        {"event": "disk_full", "job": "other", "num_more": 499, "log_level": "warning"},
        {"event": "disk_has_room", "num_more": 1, "log_level": "warning"},
    ]


def test_one_that_comes_and_goes_is_logged_as_seldom() -> None:
    trouble = LogThrottle(_log, "lost", is_error=True, clock_s=lambda: 0.0)
    with structlog.testing.capture_logs() as lines:
        for _ in range(100):
            trouble.report(exc_info=ValueError("x"))
            trouble.end()
    assert [(line["event"], line["log_level"]) for line in lines] == [("lost", "error")]
