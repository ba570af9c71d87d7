"""Why goals are missed: benchmarks/table/reasons.toml, written by hand."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.table.goals import Miss

REASONS = Path(__file__).with_name("reasons.toml")


def read_reasons(path: Path) -> dict[str, str]:
    """Why a goal is missed, written by hand: by "workload", "workload/load" or "workload/system/load". Empty without the file.

    Raises:
        ValueError: If it is malformed.
    """
    if not path.exists():
        return {}
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is no TOML: {error}") from error
    for key, text in found.items():
        if not isinstance(text, str):
            raise ValueError(f"{path}: {key} is a {type(text).__name__}, expected a text")
    return found


def reasons_for(reasons: Mapping[str, str], misses: Iterable[Miss]) -> dict[str, str]:
    """The most special reason there is for each miss: every reason once, by its key, in the order of the misses."""
    found: dict[str, str] = {}
    for miss in misses:
        keys = (f"{miss.workload}/{miss.against}/{miss.load}", f"{miss.workload}/{miss.load}", miss.workload)
        key = next((key for key in keys if key in reasons), "")
        if key:
            found[key] = reasons[key]
    return found
