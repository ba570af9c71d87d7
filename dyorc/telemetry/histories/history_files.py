"""The files of histories in a folder: each line is a history, and the oldest files go when the folder is full.

A file is named after the time when it was begun, so that names in order are files in order. Several processes, also of several
machines, may write into one folder, each into files of its own, and any of them removes the oldest.
"""

import contextlib
import heapq
import os
import secrets
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
_PARTS_OF_FOLDER = 8
_MIN_FILE_BYTES = 16 * 1024
_decoder = msgspec.json.Decoder(RequestHistory)
_head_decoder = msgspec.json.Decoder(HistoryHead)
_Line = TypeVar("_Line", HistoryHead, RequestHistory)


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
    path: Path,
    max_histories: int | None = None,
    on_damaged: Callable[[str], object] | None = None,
    wants: Callable[[HistoryHead], bool] | None = None,
) -> Iterator[RequestHistory]:
    """Yields the histories in a file, or in all files of a folder, from the oldest to the newest.

    A line that is no history of this format is skipped, wherever it stands: a process that was killed leaves half of one.

    Args:
        max_histories: Only the histories in so many of the newest lines, of those that are wanted.
        on_damaged: Gets the place of each line that is skipped, and what is wrong with it.
        wants: Whether a history is wanted; None: all are. The others are not read further.

    Raises:
        ConfigurationError: If there are no histories, wanted or not. Names the first line that was skipped.
    """
    reader = _Reader(on_damaged, wants)
    lines = reader.wanted(_lines_of(path))
    if max_histories is not None:
        lines = _newest(lines, max_histories)
    for _, place, line in lines:
        history = reader.read(place, line)
        if history is not None:
            yield history
    if reader.num_read:
        return
    if reader.first_damaged:
        raise ConfigurationError(f"{path} holds no histories that can be read; {reader.first_damaged}")
    if not reader.num_unwanted:
        raise ConfigurationError(
            f"{path} holds no histories; a server writes them if its setting telemetry.histories.folder is set"
        )


class _Reader:
    """Reads lines, and counts those that are no histories, and those that nobody wants."""

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
                self._skip(place, error)
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
            self._skip(place, error)
            return None
        self.num_read += 1
        return history

    def _skip(self, place: str, error: ValueError) -> None:
        damaged = f"{place}: {error}"
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


def _files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{_SUFFIX}"))
