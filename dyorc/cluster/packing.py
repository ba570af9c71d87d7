"""Request traces as plain values, for another process, whose clock may differ."""

from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec

from dyorc.engine.request_trace import BatchTrace, CallTrace, DecisionTrace, PartTrace, RequestTrace, TraceNote

_KINDS = ("calls", "decisions", "parts", "notes")
_RANGE = 2**36
"""An orchestrator takes months to number this many requests, and JavaScript still has exact numbers for 100,000 ranges."""

_ranges = count()


def next_number_range() -> int:
    """Returns what to add to an orchestrator's request numbers to make them unique here: every orchestrator counts from 1."""
    return next(_ranges) * _RANGE


def pack_trace(story: RequestTrace) -> dict[str, Any]:
    """Returns a trace as plain values. Calls refer to their batches by index in a list, since several calls share a batch."""
    batches: dict[int, BatchTrace] = {}
    calls: list[Any] = []
    for call in story.calls:
        for batch in call.batches:
            batches.setdefault(id(batch), batch)
        numbers = [list(batches).index(id(batch)) for batch in call.batches]
        calls.append([msgspec.to_builtins(msgspec.structs.replace(call, batches=())), numbers])
    places = {id(entry): [kind, at] for kind in _KINDS for at, entry in enumerate(getattr(story, kind))}
    return {
        "number": story.number,
        "started_ns": story.started_ns,
        "ended_ns": story.ended_ns,
        "is_answered": story.is_answered,
        "batches": msgspec.to_builtins(list(batches.values())),
        "calls": calls,
        "decisions": msgspec.to_builtins(story.decisions),
        "parts": msgspec.to_builtins(story.parts),
        "notes": msgspec.to_builtins(story.notes),
        "log": [places[id(entry)] for entry in story.since(0) if id(entry) in places],
    }


def unpack_trace_into(story: RequestTrace, values: dict[str, Any], shift_ns: int, numbers_from: int = 0) -> None:
    """Fills a trace with what was packed; its own beginning stays.

    Args:
        shift_ns: Added to all times.
        numbers_from: Added to the numbers of requests (`next_number_range`).
    """
    batches = _shifted(msgspec.convert(values["batches"], list[BatchTrace], strict=False), shift_ns)
    for batch in batches:
        batch.requests = tuple(number + numbers_from for number in batch.requests)
    story.number = values["number"] + numbers_from
    story.ended_ns = values["ended_ns"] + shift_ns if values["ended_ns"] else 0
    story.is_answered = values["is_answered"]
    story.calls = []
    for values_of_call, numbers in values["calls"]:
        call = msgspec.convert(values_of_call, CallTrace, strict=False)
        call.batches = tuple(batches[number] for number in numbers)
        story.calls.append(call)
    _shifted(story.calls, shift_ns)
    story.decisions = _shifted(msgspec.convert(values["decisions"], list[DecisionTrace], strict=False), shift_ns)
    story.parts = _shifted(msgspec.convert(values["parts"], list[PartTrace], strict=False), shift_ns)
    story.notes = _shifted(msgspec.convert(values["notes"], list[TraceNote], strict=False), shift_ns)
    story.restore([getattr(story, kind)[at] for kind, at in values["log"]])


def _shifted(entries: list[Any], shift_ns: int) -> list[Any]:
    for entry in entries:
        names: Sequence[str] = entry.__struct_fields__
        for name in names:
            if name.endswith("_ns") and isinstance(value := getattr(entry, name), int) and value:
                setattr(entry, name, value + shift_ns)
    return entries
