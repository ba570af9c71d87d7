"""Files that are either whole or not there."""

import os
import tempfile
from pathlib import Path


def write_whole(path: Path | str, text: str) -> None:
    """Writes a text file. What was there before stays until the new file is whole.

    Raises:
        OSError: The file cannot be written.
    """
    path = Path(path).resolve()  # follows a symbolic link instead of replacing it
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(number)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
