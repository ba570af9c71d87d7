"""The files of histories in a folder: each line is a history, and the oldest files go when the folder is full.

A file is named after the time when it was begun, so that names in order are files in order. Several processes, also of several
machines, may write into one folder, each into files of its own, and any of them removes the oldest.

Other things may lie in the folder. Readers take regular files only: a pipe would never end, and a link leads anywhere. Writers
remove only what a writer may have made.
"""

import contextlib
import os
import re
import secrets
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import msgspec

from dyorc.core.decode_errors import DECODE_ERRORS
from dyorc.errors import ConfigurationError
from dyorc.telemetry.histories.history import FORMAT, RequestHistory
from dyorc.telemetry.histories.history_check import check_history

_SUFFIX = ".jsonl"
_WRITTEN = re.compile(r"[0-9]{14}-[0-9a-f]{8}-[0-9]+\.jsonl")
"""Names of the files that writers make."""
_KINDS = {stat.S_IFLNK: "link", stat.S_IFDIR: "folder", stat.S_IFIFO: "named pipe", stat.S_IFSOCK: "socket"}
_PARTS_OF_FOLDER = 8
_MIN_FILE_BYTES = 16 * 1024
_decoder = msgspec.json.Decoder(RequestHistory)


class HistoryFiles:
    """Writes lines into files of a folder. For one thread.

    Args:
        folder: Is made if it does not exist, for this user alone.
        max_bytes: Of all files in the folder that writers have made.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder.absolute()  # users' modules may change the current folder
        self._max_bytes = max_bytes
        self._max_file_bytes = max(max_bytes // _PARTS_OF_FOLDER, _MIN_FILE_BYTES)
        self._token = secrets.token_hex(4)  # a process id would be the same in two containers
        self._numbers = count()
        self._descriptor = -1
        self._num_bytes = 0

    def write(self, lines: bytes) -> None:
        """Adds whole lines, or nothing.

        Raises:
            OSError: If they cannot be written. The next lines go into another file.
        """
        if self._descriptor < 0 or self._num_bytes >= self._max_file_bytes or not self._is_in_place():
            self.close()
            self._open()
        view = memoryview(lines)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            self._undo_write()
            raise
        self._num_bytes += len(lines)

    def _is_in_place(self) -> bool:
        """Returns whether the open file still lies where it was made: neither it nor its folder was removed or renamed."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._file.lstat())
        except OSError:
            return False

    def _undo_write(self) -> None:
        """Removes the part that was written, and a file without a line: a full disk must not fill the folder with those."""
        with contextlib.suppress(OSError):  # the reader leaves out half a line at the end of a file
            os.ftruncate(self._descriptor, self._num_bytes)
        self.close()
        if not self._num_bytes:
            with contextlib.suppress(OSError):
                self._file.unlink()

    def close(self) -> None:
        """Closes the file that is open, if any."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._remove_oldest()
        name = f"{time.time_ns() // 1_000_000:014d}-{self._token}-{next(self._numbers)}{_SUFFIX}"
        self._file = self._folder / name
        self._descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._num_bytes = 0

    def _remove_oldest(self) -> None:
        sizes: dict[Path, int] = {}
        for file in _entries_in(self._folder):
            with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                status = file.lstat()
                if stat.S_ISREG(status.st_mode) and _WRITTEN.fullmatch(file.name):
                    sizes[file] = status.st_size
        left = self._max_bytes - self._max_file_bytes - sum(sizes.values())
        for file, num_bytes in sizes.items():
            if left >= 0:
                return
            file.unlink(missing_ok=True)
            left += num_bytes


def read_histories(
    path: Path, max_histories: int | None = None, on_damaged: Callable[[str], object] | None = None
) -> Iterator[RequestHistory]:
    """Yields the histories in a file, or in all files of a folder, from the oldest to the newest.

    A line that is no history of this format is skipped, wherever it stands: a process that was killed leaves half of one. So is
    what lies in the folder under a name of histories and is no regular file.

    Args:
        max_histories: Only the histories in so many of the newest lines.
        on_damaged: Gets the place of each line or entry that is skipped, and what is wrong with it.

    Raises:
        ConfigurationError: If there are no histories, or the path itself is no file or folder. Names the first line or entry that
            was skipped.
        OSError: If a file cannot be read.
    """
    skipped: list[str] = []

    def skip(damaged: str) -> None:
        skipped.append(damaged)
        if on_damaged is not None:
            on_damaged(damaged)

    lines = _lines_of(path, skip)
    newest = lines if max_histories is None else iter(deque(lines, max_histories))
    is_empty = True
    for place, line in newest:
        try:
            history = _history_of(line)
        except ValueError as error:
            skip(f"{place}: {error}")
            continue
        is_empty = False
        yield history
    if is_empty and skipped:
        raise ConfigurationError(f"{path} holds no histories that can be read; {skipped[0]}")
    if is_empty:
        raise ConfigurationError(
            f"{path} holds no histories; a server writes them if its setting telemetry.histories.folder is set"
        )


def _lines_of(path: Path, skip: Callable[[str], object]) -> Iterator[tuple[str, bytes]]:
    if not path.exists():
        raise ConfigurationError(f"there is no file or folder {path}, expected histories that a server has written")
    is_folder = path.is_dir()
    for file in _entries_in(path) if is_folder else [path]:
        try:
            content = _read_regular(file if is_folder else file.resolve())
        except FileNotFoundError:  # a server has just removed it
            continue
        except ValueError as error:
            if not is_folder:
                raise ConfigurationError(f"{path}: {error}") from None
            skip(f"{file}: {error}")
            continue
        for number, line in enumerate(content.splitlines(keepends=True), start=1):
            yield f"{file}, line {number}", line


def _read_regular(file: Path) -> bytes:
    """Returns the bytes of a regular file. Raises ValueError if it is none, without waiting for anybody or following a link."""
    kind = stat.S_IFMT(file.lstat().st_mode)
    if kind == stat.S_IFREG:
        # It may have been replaced since.
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as opened:
            kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
            if kind == stat.S_IFREG:
                return opened.read()
    raise ValueError(f"it is a {_KINDS.get(kind, 'device')}, expected a regular file")


def _history_of(line: bytes) -> RequestHistory:
    """Returns the history in a line. Raises ValueError if there is none."""
    if not line.endswith(b"\n"):
        raise ValueError("the line has no end: it was cut, or is being written")
    try:
        history = _decoder.decode(line)
    except DECODE_ERRORS as error:
        raise ValueError(f"expected a history: {error}") from None
    if history.format != FORMAT:
        raise ValueError(f"it is a history of format {history.format}, expected {FORMAT}: record it again")
    try:
        check_history(history)
    except ValueError as error:
        raise ValueError(f"the history is damaged: {error}") from error
    return history


def _entries_in(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{_SUFFIX}"))
