"""Notices that source files change, by asking the file system again and again. Only the standard library.

Nothing that notifies is worth a dependency here: a workflow has tens of files, and asking for 100 takes 0.2 ms.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from dyorc.authoring.user_files import is_own

_LOOK_S = 0.15
_SETTLE_S = 0.05
"""An editor may remove a file before it writes it again, and write several at once."""
_MAX_FILES = 2000
_Stamp = tuple[int, int]
_GONE = (0, 0)


class FileWatcher:
    """Knows which files matter.

    Args:
        folders: All that may matter is below these.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = [folder.resolve() for folder in folders]
        self._stamps: dict[str, _Stamp] = {}
        self._since_ns = 0
        self._is_everything = False

    @property
    def num_files(self) -> int:
        """How many files matter now."""
        return len(self._stamps)

    def begin(self) -> None:
        """The code is about to be read: what is written from now on is a change, even if that file is named only later."""
        self._since_ns = time.time_ns()
        self._is_everything = False
        self._stamps = {path: _stamp(path) for path in self._stamps}

    def watch(self, paths: Iterable[str]) -> None:
        """These files matter, in place of those before."""
        self._stamps = {path: self._stamps.get(path) or self._first(path) for path in paths}

    def watch_everything(self) -> None:
        """All Python files below the folders matter, since it is not known which are needed: one may still be missing."""
        self._is_everything = True
        for path in self._everything():
            self._stamps.setdefault(path, self._first(path))

    def _first(self, path: str) -> _Stamp:
        stamp = _stamp(path)
        return _GONE if stamp[0] > self._since_ns else stamp

    async def wait_for_change(self) -> list[str]:
        """Waits until a file changes. Returns the names of those that did, relative to the current folder where possible."""
        while not (found := self._changed()):  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(_LOOK_S)
        await asyncio.sleep(_SETTLE_S)
        return [_short(path) for path in sorted(found)]

    def _changed(self) -> list[str]:
        found = [path for path, stamp in self._stamps.items() if _stamp(path) != stamp]
        if self._is_everything:
            found += [path for path in self._everything() if path not in self._stamps]
        return found

    def _everything(self) -> Iterator[str]:
        num_left = _MAX_FILES
        for top in self._folders:
            for folder, inner, names in os.walk(top):
                inner[:] = [name for name in inner if is_own(os.path.join(folder, name))]
                for name in names:
                    if name.endswith(".py"):
                        yield os.path.join(folder, name)
                        num_left -= 1
                if num_left <= 0:
                    return


def _short(path: str) -> str:
    return os.path.relpath(path) if path.startswith(os.getcwd() + os.sep) else path


def _stamp(path: str) -> _Stamp:
    try:
        status = os.stat(path)
    except OSError:
        return _GONE
    return status.st_mtime_ns, status.st_size
