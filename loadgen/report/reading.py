"""Reads results from the files that the command line writes."""

from pathlib import Path

import msgspec

from dyorc.core.decode_errors import DECODE_ERRORS
from loadgen.compare import Comparison
from loadgen.results import SCHEMA, RunResult
from loadgen.sweep import SweepResult


class _Head(msgspec.Struct):
    kind: str = ""
    schema: int = 0


def read_results(path: Path) -> list[RunResult]:
    """Returns the measurements in a file of one result, of several, of a sweep or of a comparison.

    Raises:
        ValueError: If it is none of these.
    """
    data = path.read_bytes()
    try:
        results = _results(data)
    except DECODE_ERRORS as error:
        raise ValueError(f"{path} holds no result of the load generator: {error}") from error
    if not results:
        raise ValueError(f"{path} holds no measurements")
    for result in results:
        if result.schema != SCHEMA:
            raise ValueError(f"{path} has schema {result.schema}, expected {SCHEMA}")
    return results


def _results(data: bytes) -> list[RunResult]:
    if data.lstrip().startswith(b"["):
        return msgspec.json.decode(data, type=list[RunResult])
    match msgspec.json.decode(data, type=_Head).kind:
        case "sweep":
            return [probe.result for probe in msgspec.json.decode(data, type=SweepResult).probes]
        case "comparison":
            return msgspec.json.decode(data, type=Comparison).runs
        case _:
            return [msgspec.json.decode(data, type=RunResult)]
