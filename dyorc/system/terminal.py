"""What the terminal allows. Only the standard library."""

import shutil
from typing import Literal

_NARROW = 60
"""Columns below which help comes without panels, which would cut the names of options."""


def help_markup() -> Literal["rich"] | None:
    """Returns typer's `rich_markup_mode` for this terminal."""
    return None if shutil.get_terminal_size().columns < _NARROW else "rich"
