"""Options of commands that name where results go, for argparse: a wrong path fails before the work, not after it."""

import argparse
import os
from pathlib import Path

from dyorc.system.output_option import why_not_writable


def output_file(text: str) -> Path:
    """Returns the path of a file that can be written; its folder is made if there is none.

    Raises:
        argparse.ArgumentTypeError: If none can be written there.
    """
    path = Path(text)
    output_folder(str(path.parent))
    if why := why_not_writable(path):
        raise argparse.ArgumentTypeError(why)
    return path


def output_folder(text: str) -> Path:
    """Returns the path of a folder for files; it is made if there is none.

    Raises:
        argparse.ArgumentTypeError: If it cannot be made, or no file in it.
    """
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise argparse.ArgumentTypeError(f"{path} cannot be a folder for results: it is a file") from None
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path} cannot be a folder for results: {error.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"{path} cannot be a folder for results: permission denied")
    return path
