"""Traces: when requests came, for which workflow, and what decided their branches. Trace files are read and written here.

A trace is CSV with a header, or JSON lines, with the fields of `TracedRequest`; a file without a header has one timestamp on each
line. Times are seconds from any origin, ascending. The load generator makes such files, the simulator replays them.
"""

import csv
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dyorc.errors import InvalidInputError

_FIELDS = ("time_s", "workflow", "branch")


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One request.

    Attributes:
        workflow: Its workflow's name; empty if the trace does not say.
        branch: A number in [0, 1) from which the request's decisions follow, where the reader can do that; None if the trace does
            not say.
    """

    time_s: float
    workflow: str = ""
    branch: float | None = None


def read_trace(path: Path) -> tuple[TracedRequest, ...]:
    """Reads a trace.

    Raises:
        OSError: If the file cannot be read.
        InvalidInputError: If a line is not valid; the message names it.
    """
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is not a trace: {error}") from error
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise InvalidInputError(f"{path} is empty, expected one request on each line")
    rows = _json_rows(path, lines) if lines[0][1].lstrip().startswith("{") else _csv_rows(path, lines)
    requests: list[TracedRequest] = []
    for where, row in rows:
        request = _request(where, row)
        if requests and request.time_s < requests[-1].time_s:
            raise InvalidInputError(f"{where}: time_s is {request.time_s}, expected at least the {requests[-1].time_s} before it")
        requests.append(request)
    return tuple(requests)


def write_trace(path: Path, requests: Iterable[TracedRequest]) -> None:
    """Writes a trace as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_FIELDS)
        for request in requests:
            branch = "" if request.branch is None else f"{request.branch:.6f}"
            writer.writerow((f"{request.time_s:.6f}", request.workflow, branch))


def _json_rows(path: Path, lines: Sequence[tuple[int, str]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in lines:
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # also of numbers of thousands of digits
            raise InvalidInputError(f"{where}: {error}; expected a JSON object on each line") from error
        if not isinstance(row, dict):
            raise InvalidInputError(f"{where} is {line.strip()[:80]}, expected a JSON object")
        yield where, row


def _csv_rows(path: Path, lines: Sequence[tuple[int, str]]) -> Iterator[tuple[str, dict[str, Any]]]:
    names: Sequence[str] = _FIELDS[:1]
    for at, (number, line) in enumerate(lines):
        where = f"{path}, line {number}"
        try:
            row = next(csv.reader([line], strict=True))
        except csv.Error as error:
            raise InvalidInputError(f"{where}: {error}; expected fields with commas between them, on one line") from error
        if at == 0 and "time_s" in (header := [cell.strip() for cell in row]):
            names = header
            continue
        if len(row) != len(names):
            raise InvalidInputError(f"{where} has {len(row)} fields, expected {len(names)}: {', '.join(names)}")
        yield where, {name: value for name, cell in zip(names, row, strict=True) if (value := cell.strip()) or name == "time_s"}


def _request(where: str, row: dict[str, Any]) -> TracedRequest:
    if unknown := sorted(row.keys() - set(_FIELDS)):
        raise InvalidInputError(f"{where} has the field {unknown[0]!r}, expected {', '.join(_FIELDS)}")
    time_s = _number(where, "time_s", row.get("time_s"))
    branch = None if row.get("branch") is None else _number(where, "branch", row["branch"])
    if branch is not None and not 0 <= branch < 1:
        raise InvalidInputError(f"{where}: branch is {branch}, expected at least 0 and less than 1")
    workflow = row.get("workflow", "")
    if not isinstance(workflow, str):
        raise InvalidInputError(f"{where}: workflow is {workflow!r}, expected a name")
    return TracedRequest(time_s, workflow, branch)


def _number(where: str, name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidInputError(f"{where}: {name} is {value!r}, expected a number")
    return number
