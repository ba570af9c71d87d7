"""What a check finds, and what it looks at. No I/O."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from dyorc.config import Settings

Level: TypeAlias = Literal["ok", "warning", "error"]
"""``warning``: something will be slow, small or missing; ``error``: something will not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check says.

    Attributes:
        text: What is, in one line.
        cure: What to do about it, in one line; empty where there is nothing to do.
    """

    level: Level
    text: str
    cure: str = ""


def ok(text: str) -> Finding:
    """Returns a finding that asks for nothing."""
    return Finding("ok", text)


def warning(text: str, cure: str) -> Finding:
    """Returns a finding that something will be slow, small or missing."""
    return Finding("warning", text, cure)


def error(text: str, cure: str) -> Finding:
    """Returns a finding that something will not work."""
    return Finding("error", text, cure)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is examined.

    Attributes:
        settings: The settings in force; the defaults if these cannot be read.
        settings_error: Why the settings cannot be read; empty if they can.
        config: The configuration file, if there is one.
        url: A running server; empty: none is asked.
        key: An API key for it.
        ca: The authorities to trust instead of the system's.
    """

    settings: Settings = field(default_factory=Settings)
    settings_error: str = ""
    config: Path | None = None
    url: str = ""
    key: str | None = None
    ca: Path | None = None


def mebibytes(num_bytes: float) -> str:
    """Returns a size for people."""
    return f"{num_bytes / 2**30:.1f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:.0f} MiB"
