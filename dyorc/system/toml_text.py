"""Reads TOML with one error for all that may be wrong with it. Used wherever people's files are read; safe in any thread."""

import tomllib
from pathlib import Path
from typing import Any


def parse_toml(text: str) -> dict[str, Any]:
    """Returns the tables of a text.

    Raises:
        ValueError: If it is not TOML, has a whole number of thousands of digits, or is nested too deeply.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Returns the tables of a file.

    Raises:
        OSError: If it cannot be read.
        ValueError: As `parse_toml`, or if it is not UTF-8.
    """
    return parse_toml(path.read_text("utf-8"))
