"""The files of histories in a folder: each line is a history, and the oldest files go when the folder is full.

A file is named after the time when it was begun, so that names in order are files in order. Several processes, also of several
machines, may write into one folder, each into files of its own, and any of them removes the oldest.
"""

import contextlib
import os
import secrets
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
_PARTS_OF_FOLDER = 8
_MIN_FILE_BYTES = 16 * 1024
_decoder = msgspec.json.Decoder(RequestHistory)


class HistoryFiles:
    """Writes lines into files of a folder. For one thread.

    Args:
        folder: Is made if it does not exist, for this user alone.
        max_bytes: Of the whole folder.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
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
        if self._descriptor < 0 or self._num_bytes >= self._max_file_bytes or not os.fstat(self._descriptor).st_nlink:
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
        for file in _files_in(self._folder):
            with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                sizes[file] = file.stat().st_size
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

    A line that is no history of this format is skipped, wherever it stands: a process that was killed leaves half of one.

    Args:
        max_histories: Only the histories in so many of the newest lines.
        on_damaged: Gets the place of each line that is skipped, and what is wrong with it.

    Raises:
        ConfigurationError: If there are no histories. Names the first line that was skipped.
    """
    lines = _lines_of(path)
    newest = lines if max_histories is None else iter(deque(lines, max_histories))
    is_empty, first_damaged = True, ""
    for place, line in newest:
        try:
            history = _history_of(line)
        except ValueError as error:
            damaged = f"{place}: {error}"
            first_damaged = first_damaged or damaged
            if on_damaged is not None:
                on_damaged(damaged)
            continue
        is_empty = False
        yield history
    if is_empty and first_damaged:
        raise ConfigurationError(f"{path} holds no histories that can be read; {first_damaged}")
    if is_empty:
        raise ConfigurationError(
            f"{path} holds no histories; a server writes them if its setting telemetry.histories.folder is set"
        )


def _lines_of(path: Path) -> Iterator[tuple[str, bytes]]:
    if not path.exists():
        raise ConfigurationError(f"there is no file or folder {path}, expected histories that a server has written")
    for file in _files_in(path) if path.is_dir() else [path]:
        try:
            content = file.read_bytes()
        except FileNotFoundError:  # a server has just removed it
            continue
        for number, line in enumerate(content.splitlines(keepends=True), start=1):
            yield f"{file}, line {number}", line


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


def _files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{_SUFFIX}"))
