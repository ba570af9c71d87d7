"""Finds out which files are the user's own. Only the standard library, since supervisors use it."""

import os
from collections.abc import Iterable
from pathlib import Path

_FOREIGN = frozenset({"site-packages", "dist-packages", "node_modules", "__pycache__"})


def is_own(folder: str) -> bool:
    """Returns whether a folder inside a user's folder may hold the user's code, and not libraries."""
    name = os.path.basename(folder)
    return not name.startswith(".") and name not in _FOREIGN and not os.path.exists(os.path.join(folder, "pyvenv.cfg"))


def is_below(path: str, folders: Iterable[Path]) -> bool:
    """Returns whether a file below one of the folders is the user's own, and not a library installed there."""
    for folder in folders:
        top = f"{folder}{os.sep}"
        if path.startswith(top):
            parts = path.removeprefix(top).split(os.sep)[:-1]
            places = [os.path.join(folder, *parts[: number + 1]) for number in range(len(parts))]
            return all(map(is_own, places))
    return False


def folders_of(targets: Iterable[str]) -> list[Path]:
    """Returns the folders of the user's code: the current one and those of the targets."""
    places = [Path(target.rpartition(":")[0]) for target in targets]
    return list(dict.fromkeys([Path.cwd(), *(place.resolve().parent for place in places if place.suffix == ".py")]))
