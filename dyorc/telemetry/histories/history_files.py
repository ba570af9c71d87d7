"""The files of histories in a folder: each line is a history, and the oldest files go when the folder is full.

A file is named after the time when it was begun, so that names in order are files in order. Several processes, also of several
machines, may write into one folder, each into files of its own, and any of them removes the oldest.

Other things may lie in the folder. Readers take regular files only: a pipe would never end, and a link leads anywhere. Writers
remove only what a writer may have made.
"""

import contextlib
import heapq
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import TypeVar

import msgspec

from dyorc.core.decode_errors import DECODE_ERRORS
from dyorc.errors import ConfigurationError
from dyorc.telemetry.histories.history import FORMAT, HistoryHead, RequestHistory
from dyorc.telemetry.histories.history_check import check_history

_SUFFIX = ".jsonl"
_WRITTEN = re.compile(r"[0-9]{14}-[0-9a-f]{8}-[0-9]+\.jsonl")
"""Names of the files that writers make."""
_KINDS = {stat.S_IFLNK: "link", stat.S_IFDIR: "folder", stat.S_IFIFO: "named pipe", stat.S_IFSOCK: "socket"}
_PARTS_OF_FOLDER = 8
_MIN_FILE_BYTES = 16 * 1024
_decoder = msgspec.json.Decoder(RequestHistory)
_head_decoder = msgspec.json.Decoder(HistoryHead)
_Line = TypeVar("_Line", HistoryHead, RequestHistory)


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
    path: Path,
    max_histories: int | None = None,
    on_damaged: Callable[[str], object] | None = None,
    wants: Callable[[HistoryHead], bool] | None = None,
) -> Iterator[RequestHistory]:
    """Yields the histories in a file, or in all files of a folder, from the oldest to the newest.

    A line that is no history of this format is skipped, wherever it stands: a process that was killed leaves half of one. So is
    what lies in the folder under a name of histories and is no regular file.

    Args:
        max_histories: Only the histories in so many of the newest wanted lines.
        on_damaged: Gets the place of each line or entry that is skipped, and what is wrong with it.
        wants: Whether a history is wanted; None: all are. The others are not read further.

    Raises:
        ConfigurationError: If there are no histories, wanted or not, or the path is no file or folder. Names the first line
            or entry that was skipped.
        OSError: If a file cannot be read.
    """
    reader = _Reader(on_damaged, wants)
    lines = reader.wanted(_lines_of(path, reader.skip))
    if max_histories is not None:
        lines = _newest(lines, max_histories)
    for _, place, line in lines:
        history = reader.read(place, line)
        if history is not None:
            yield history
    if reader.num_read or reader.num_unwanted:
        return
    if reader.first_damaged:
        raise ConfigurationError(f"{path} holds no histories that can be read; {reader.first_damaged}")
    raise ConfigurationError(f"{path} holds no histories; a server writes them if its setting telemetry.histories.folder is set")


class _Reader:
    """Reads lines, and counts the ones that are read and the unwanted ones."""

    def __init__(self, on_damaged: Callable[[str], object] | None, wants: Callable[[HistoryHead], bool] | None) -> None:
        self._on_damaged = on_damaged
        self._wants = wants
        self.num_read = self.num_unwanted = 0
        self.first_damaged = ""

    def wanted(self, lines: Iterable[tuple[str, bytes]]) -> Iterator[tuple[float, str, bytes]]:
        """Yields the lines that are wanted, each with when its request ended and its place."""
        for place, line in lines:
            try:
                head = _decoded(line, _head_decoder)
            except ValueError as error:
                self.skip(f"{place}: {error}")
                continue
            if self._wants is None or self._wants(head):
                yield head.at_s, place, line
            else:
                self.num_unwanted += 1

    def read(self, place: str, line: bytes) -> RequestHistory | None:
        """Returns the history in a line; None if there is none."""
        try:
            history = _decoded(line, _decoder)
            check_history(history)
        except ValueError as error:
            self.skip(f"{place}: {error}")
            return None
        self.num_read += 1
        return history

    def skip(self, damaged: str) -> None:
        """Skips a line or an entry of the folder."""
        self.first_damaged = self.first_damaged or damaged
        if self._on_damaged is not None:
            self._on_damaged(damaged)


def _newest(lines: Iterable[tuple[float, str, bytes]], number: int) -> Iterator[tuple[float, str, bytes]]:
    """Yields the newest of some lines, the oldest first. Holds no more of them than that: a folder may be large."""
    newest: list[tuple[float, int, str, bytes]] = []
    for at, (at_s, place, line) in enumerate(lines):
        if len(newest) < number:
            heapq.heappush(newest, (at_s, at, place, line))
        else:
            heapq.heappushpop(newest, (at_s, at, place, line))
    for at_s, _, place, line in sorted(newest):
        yield at_s, place, line


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


def _decoded(line: bytes, decoder: msgspec.json.Decoder[_Line]) -> _Line:
    """Returns the history in a line, or its head. Raises ValueError if there is none."""
    if not line.endswith(b"\n"):
        raise ValueError("the line has no end: it was cut, or is being written")
    try:
        decoded = decoder.decode(line)
    except DECODE_ERRORS as error:
        raise ValueError(f"expected a history: {error}") from None
    if decoded.format != FORMAT:
        raise ValueError(f"it is a history of format {decoded.format}, expected {FORMAT}: record it again")
    return decoded


def _entries_in(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{_SUFFIX}"))
