"""Which files are the user's own. Only the standard library: a supervisor asks, too."""

import os
from collections.abc import Iterable
from pathlib import Path

_FOREIGN = frozenset({"site-packages", "dist-packages", "node_modules", "__pycache__"})


def is_own(folder: str) -> bool:
    """Returns whether a folder below one of the user's may hold code of the user's, and not libraries."""
    name = os.path.basename(folder)
    return not name.startswith(".") and name not in _FOREIGN and not os.path.exists(os.path.join(folder, "pyvenv.cfg"))


def is_below(path: str, folders: Iterable[Path]) -> bool:
    """Whether a file is the user's own, below one of the folders, and not a library that lies there too."""
    for folder in folders:
        top = f"{folder}{os.sep}"
        if path.startswith(top):
            parts = path.removeprefix(top).split(os.sep)[:-1]
            places = [os.path.join(folder, *parts[: number + 1]) for number in range(len(parts))]
            return all(map(is_own, places))
    return False


def folders_of(targets: Iterable[str]) -> list[Path]:
    """Returns where the user's code is: the current folder, and those of the targets."""
    places = [Path(target.rpartition(":")[0]) for target in targets]
    return list(dict.fromkeys([Path.cwd(), *(place.resolve().parent for place in places if place.suffix == ".py")]))
