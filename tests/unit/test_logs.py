"""What a process logs, for people and as JSON. Each test runs a process of its own, because logging is global."""

import json
import subprocess
import sys
from typing import Any

_BEGIN = """
import logging, structlog
from dyorc.config import LogsConfig
from dyorc.telemetry import logs
ours, theirs = structlog.get_logger("dyorc.gateway"), logging.getLogger("library.part")
"""


def _output(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", _BEGIN + script], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == ""
    return done.stderr


def _lines(script: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _output(script).splitlines()]


def test_json_has_time_level_event_logger_and_process() -> None:
    (line,) = _lines("""
logs.set_up(LogsConfig(format="json"), cell=3)
ours.warning("overloaded", num_refused=2)
""")
    assert line["time"].endswith("Z")
    assert line["time_s"] > 1.7e9
    assert list(line)[:5] == ["time", "time_s", "level", "event", "logger"]
    expected = {"level": "warning", "event": "overloaded", "logger": "dyorc.gateway", "cell": 3, "num_refused": 2}
    assert {name: line[name] for name in expected} == expected


def test_libraries_lines_have_the_same_form() -> None:
    ours, theirs, warning = _lines("""
import warnings
logs.set_up(LogsConfig(format="json", level="info"), replica="small#1")
ours.info("a")
theirs.info("%d b", 2)
warnings.warn("c")
""")
    assert (theirs["event"], theirs["logger"], theirs["level"]) == ("2 b", "library.part", "info")
    assert ours.keys() == theirs.keys()
    assert theirs["replica"] == warning["replica"] == "small#1"
    assert "c" in warning["event"]


def test_errors_are_structured_and_tell_no_local_variables() -> None:
    script = """
logs.set_up(LogsConfig(format="{format}"))
def fail(key):
    raise ValueError("too large")
for log in (ours, theirs):
    try:
        fail("sec" + "ret")
    except ValueError:
        log.exception("crashed")
"""
    for line in _lines(script.replace("{format}", "json")):
        (error,) = line["exception"]
        assert (error["exc_type"], error["exc_value"]) == ("ValueError", "too large")
        assert [frame["name"] for frame in error["frames"]] == ["<module>", "fail"]
        assert "secret" not in json.dumps(line)
    shown = _output(script.replace("{format}", "console"))
    assert shown.count("ValueError: too large") == 2
    assert "secret" not in shown


def test_levels_and_form_can_be_changed() -> None:
    output = _output("""
logs.set_up(LogsConfig(level="error"))
def say(text):
    for log in (ours, theirs):
        log.info(text)
say("one")
logs.change(LogsConfig(level="info", format="json"))
say("two")
logs.change(LogsConfig(level="warning"))
say("three")
ours.warning("four")
""")
    *two, four = output.splitlines()
    assert [json.loads(line)["event"] for line in two] == ["two", "two"]
    assert "four" in four
    assert "[dyorc.gateway]" in four


def test_somebody_elses_logging_is_left_alone() -> None:
    assert _output("logs.change(LogsConfig(level='debug', format='json'))\ntheirs.info('one')\n") == ""


def test_anything_can_be_logged_as_json() -> None:
    (line,) = _lines(r"""
logs.set_up(LogsConfig(format="json"))
ours.warning("odd", number=float("inf"), text="\udc80", keys={(1, 2): 3}, thing=logs, huge=10**30)
""")
    assert line["event"] == "odd"
    assert "module" in line["thing"]


def test_context_is_in_each_line() -> None:
    ours, theirs = _lines("""
logs.set_up(LogsConfig(format="json"))
with structlog.contextvars.bound_contextvars(request_id="r-1"):
    ours.warning("a")
    theirs.warning("b")
""")
    assert ours["request_id"] == theirs["request_id"] == "r-1"


def test_nobody_reads_what_is_logged() -> None:
    _output("""
import os, sys
ends = os.pipe()
os.close(ends[0])
sys.stderr = os.fdopen(ends[1], "w", buffering=1)
logs.set_up(LogsConfig())
ours.warning("a")
theirs.warning("b")
os._exit(0)  # at the end, Python would notice, too
""")
