"""Checks traces against the "Trace Event Format" (Google, 2016), strictly: what viewers tolerate or guess is not allowed here.

The rules, by the document's sections: "JSON Object Format", "Event Descriptions" (common fields), "Complete Events", "Metadata
Events" and "Flow Events". Beside them, Perfetto's rule that slices of a row nest.
"""

import json
import math
from collections import Counter, defaultdict
from typing import Any, NoReturn

Event = dict[str, Any]
Row = tuple[int, int]

_TOP = {"traceEvents", "displayTimeUnit", "otherData", "systemTraceEvents", "stackFrames", "samples", "metadata"}
_COMMON = {"name", "ph", "pid", "tid"}
_NEEDED = {
    "X": _COMMON | {"cat", "ts", "dur"},
    "M": _COMMON | {"args"},
    "s": _COMMON | {"cat", "ts", "id"},
    "f": _COMMON | {"cat", "ts", "id", "bp"},
}
"""What an event has, by its phase. `bp` is optional in the format: without it, an arrow ends at the next slice, not this one."""
_ALLOWED = {"X": {"args", "cname", "tts", "tdur"}, "M": {"cat", "ts"}, "s": {"args"}, "f": {"args"}}
_METADATA = {"process_name", "thread_name"}


def check_text(text: str | bytes) -> dict[str, Any]:
    """Checks a trace as it is in a file. Returns it."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} is not JSON")

    trace = json.loads(text, parse_constant=refuse)
    assert set(trace) <= _TOP, set(trace) - _TOP
    assert trace["displayTimeUnit"] in ("ms", "ns")
    assert isinstance(trace.get("otherData", {}), dict)
    check(trace["traceEvents"])
    return trace


def check(events: list[Event]) -> None:
    """Checks the events of a trace."""
    for event in events:
        _check_fields(event)
    _check_names(events)
    bars = _bars_of(events)
    for row in bars.values():
        _check_row(row)
    _check_arrows(events, bars)


def _check_fields(event: Event) -> None:
    phase = event["ph"]
    assert phase in _NEEDED, f"phase {phase!r}"
    assert _NEEDED[phase] <= set(event) <= _NEEDED[phase] | _ALLOWED[phase] | {"args"}, event
    assert isinstance(event["name"], str)
    for name in ("pid", "tid"):
        assert type(event[name]) is int, event
    for name in ("ts", "dur"):
        value = event.get(name, 0)
        assert type(value) in (int, float), event
        assert 0 <= value < math.inf, event
        assert abs(value * 1e3 - round(value * 1e3)) < 1e-2, f"{name} {value} is no whole number of nanoseconds"
    assert isinstance(event.get("cat", ""), str)
    assert isinstance(event.get("args", {}), dict)
    assert type(event.get("id", 0)) in (int, str)
    assert event.get("bp", "e") == "e"


def _check_names(events: list[Event]) -> None:
    """Every process and row that is drawn on has one name."""
    named = Counter[tuple[str, int, int]]()
    for event in events:
        if event["ph"] == "M":
            assert event["name"] in _METADATA, event
            assert isinstance(event["args"]["name"], str), event
            assert event["args"]["name"], event
            row = event["tid"] if event["name"] == "thread_name" else 0
            named[event["name"], event["pid"], row] += 1
    assert set(named.values()) <= {1}, [one for one, number in named.items() if number > 1]
    for event in events:
        if event["ph"] != "M":
            assert named["process_name", event["pid"], 0], event
            assert named["thread_name", event["pid"], event["tid"]], event


def _bars_of(events: list[Event]) -> dict[Row, list[tuple[int, int]]]:
    """Returns begin and end of the bars of each row, in nanoseconds, in the order in which they stand in the trace."""
    found: defaultdict[Row, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = round(event["ts"] * 1e3)
            found[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1e3)))
    return found


def _check_row(bars: list[tuple[int, int]]) -> None:
    """Bars of a row come in the order of their times, and each is within the one that is open, or begins after it."""
    open_until: list[int] = []
    last = 0
    for start, end in bars:
        assert start >= last, "times go back"
        last = start
        while open_until and open_until[-1] <= start:
            open_until.pop()
        assert not open_until or end <= open_until[-1], "bars overlap without one being within the other"
        open_until.append(end)


def _check_arrows(events: list[Event], bars: dict[Row, list[tuple[int, int]]]) -> None:
    """An arrow is a start and an end of the same category, name and id; both bind to an open bar of their row."""
    ends: defaultdict[tuple[str, str, Any], list[Event]] = defaultdict(list)
    ids = defaultdict[Any, set[tuple[str, str]]](set)
    for event in events:
        if event["ph"] in "sf":
            ends[event["cat"], event["name"], event["id"]].append(event)
            ids[event["id"]].add((event["cat"], event["name"]))
            at_ns = round(event["ts"] * 1e3)
            row = bars.get((event["pid"], event["tid"]), [])
            assert any(start <= at_ns < end for start, end in row), f"no bar is open at {event}"
    for flow, both in ends.items():
        assert sorted(event["ph"] for event in both) == ["f", "s"], flow
        start, end = sorted(both, key=lambda event: event["ph"], reverse=True)
        assert start["ts"] <= end["ts"], flow
    assert all(len(kinds) == 1 for kinds in ids.values()), "viewers that go by the id alone would join these"
