"""A check for options of commands that name a file for results: before the work, not after it, when all would be lost."""

import os
from pathlib import Path
from typing import TypeVar

import typer

P = TypeVar("P", bound=Path | None)


def writable(path: P) -> P:
    """Returns an option's value; for `callback` of `typer.Option`.

    Raises:
        typer.BadParameter: If no file can be written there.
    """
    if path is not None and (why := why_not_writable(path)):
        raise typer.BadParameter(why)
    return path


def why_not_writable(path: Path) -> str:
    """Returns why no file can be written there, with the path; empty if one can. Nothing is written."""
    if path.is_dir():
        return f"{path} is a folder, expected a file"
    if not path.exists() and not path.parent.is_dir():
        return f"{path} cannot be written: there is no folder {path.parent}"
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        return f"{path} cannot be written: permission denied"
    return ""
