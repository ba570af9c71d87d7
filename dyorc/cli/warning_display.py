"""How commands show warnings."""

import sys
import warnings

from rich.console import Console
from rich.markup import escape

from dyorc.errors import CaptureWarning


def show_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int, *place: object) -> None:
    """Prints our warnings as one line, and others as Python does: for `warnings.showwarning`."""
    if issubclass(category, CaptureWarning):
        Console(stderr=True).print(f"[yellow]note:[/yellow] {escape(str(message))}", highlight=False, soft_wrap=True)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))
