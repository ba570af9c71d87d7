"""Lets users' modules be imported from their folder, but not in place of Python's own. Only the standard library."""

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_FOLDER = os.path.dirname(os.__file__)
_EXTENSIONS = "lib-dynload"


class StandardLibraryFirst(MetaPathFinder):
    """Finds the modules of the standard library there, whatever the path begins with: the server imports some of them late, and a
    user's `http.py` or `queue.py` in their place would break it."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Returns where a module of the standard library is; None for others, which have further finders."""
        if path is not None or fullname not in sys.stdlib_module_names:
            return None
        return PathFinder.find_spec(fullname, [_FOLDER, *(each for each in sys.path if os.path.basename(each) == _EXTENSIONS)])


def put_first(folder: str) -> None:
    """Lets modules be imported from a folder, before libraries of the same names but not before the standard library's."""
    if not any(isinstance(finder, StandardLibraryFirst) for finder in sys.meta_path):
        is_path = [finder is PathFinder for finder in sys.meta_path]
        sys.meta_path.insert(is_path.index(True) if True in is_path else len(is_path), StandardLibraryFirst())
    if folder not in sys.path:
        sys.path.insert(0, folder)
