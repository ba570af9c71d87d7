"""Why goals are missed. The reasons are written by hand, in benchmarks/table/reasons.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.table.goals import Miss

REASONS = Path(__file__).with_name("reasons.toml")
_FOR_DEVICES = "devices: "
"""Keys of reasons for the second table start with this."""


def read_reasons(path: Path) -> dict[str, str]:
    """Returns the reasons by "workload", "workload/load" or "workload/system/load", of both tables; none if there is no file.

    Raises:
        ValueError: If the file is malformed.
    """
    if not path.exists():
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error
    for key, text in content.items():
        if not isinstance(text, str):
            raise ValueError(f"{path}: {key} is a {type(text).__name__}, expected a string")
    return content


def reasons_of_table(reasons: Mapping[str, str], on_devices: bool) -> dict[str, str]:
    """Returns the reasons for one of the two tables, without the mark by which they are told apart."""
    of_devices = {key.removeprefix(_FOR_DEVICES): why for key, why in reasons.items() if key.startswith(_FOR_DEVICES)}
    return of_devices if on_devices else {key: why for key, why in reasons.items() if not key.startswith(_FOR_DEVICES)}


def reasons_for(reasons: Mapping[str, str], misses: Iterable[Miss]) -> dict[str, str]:
    """Returns the most specific reason for each miss, by its key and in the order of the misses. Each reason appears once."""
    texts: dict[str, str] = {}
    for miss in misses:
        keys = (f"{miss.workload}/{miss.against}/{miss.load}", f"{miss.workload}/{miss.load}", miss.workload)
        key = next((key for key in keys if key in reasons), "")
        if key:
            texts[key] = reasons[key]
    return texts
