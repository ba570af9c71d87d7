"""Notices changes of source files by polling the file system. Only the standard library.

Notifications are not worth a dependency here: a workflow has tens of files, and checking 100 takes 0.2 ms.
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
    """Watches the files that a workflow depends on.

    Args:
        folders: Where all of them are, directly or below.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = [folder.resolve() for folder in folders]
        self._stamps: dict[str, _Stamp] = {}
        self._since_ns = 0
        self._watches_all = False

    @property
    def num_files(self) -> int:
        """How many files are watched now."""
        return len(self._stamps)

    def begin(self) -> None:
        """Call this before the code is read: writes from now on are changes, even to files that `watch` names only later."""
        self._since_ns = time.time_ns()
        self._watches_all = False
        self._stamps = {path: _stamp(path) for path in self._stamps}

    def watch(self, paths: Iterable[str]) -> None:
        """Watches these files, and no others."""
        self._stamps = {path: self._stamps.get(path) or self._first_stamp(path) for path in paths}

    def watch_everything(self) -> None:
        """Watches all Python files below the folders. For code that cannot be loaded: a file that it needs may be missing."""
        self._watches_all = True
        for path in self._python_files():
            self._stamps.setdefault(path, self._first_stamp(path))

    def _first_stamp(self, path: str) -> _Stamp:
        stamp = _stamp(path)
        return _GONE if stamp[0] > self._since_ns else stamp

    async def wait_for_change(self) -> list[str]:
        """Waits until a file changes. Returns the changed files, relative to the current folder where possible."""
        while not (changed := self._changed_files()):  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(_LOOK_S)
        await asyncio.sleep(_SETTLE_S)
        return [_short(path) for path in sorted(changed)]

    def _changed_files(self) -> list[str]:
        changed = [path for path, stamp in self._stamps.items() if _stamp(path) != stamp]
        if self._watches_all:
            changed += [path for path in self._python_files() if path not in self._stamps]
        return changed

    def _python_files(self) -> Iterator[str]:
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
