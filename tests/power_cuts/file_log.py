"""What processes did with the files under a folder, in order: by a library of our own (`file_log.c`) that is preloaded."""

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

_SOURCE = Path(__file__).with_suffix(".c")
_HEAD = struct.Struct("=iiqqiiq")


class StepKind(IntEnum):
    """What was done; the numbers are those of `file_log.c`."""

    CREATE = 1
    WRITE = 2
    TRUNCATE = 3
    SYNC = 4
    UNLINK = 5
    RENAME = 6
    MAKE_FOLDER = 7
    REMOVE_FOLDER = 8
    MARK = 9
    UNKNOWN = 10


class Step(NamedTuple):
    """One step.

    Attributes:
        file: The inode.
        offset: Where in the file, in bytes; for `TRUNCATE` its new length.
        path: Relative to the folder, "." for the folder itself; empty where the inode says enough.
        other: The new path of `RENAME`; for `UNKNOWN` the name of the call.
        data: What was written, or the text of a mark.
    """

    kind: StepKind
    file: int
    offset: int
    path: str
    other: str
    data: bytes


class FileLog:
    """A folder whose changes are logged, in another folder, which is made. Files are in shared memory: no disk is waited for.

    Attributes:
        folder: What processes may change.
    """

    def __init__(self, work: Path) -> None:
        self.folder = work / "disk"
        self.folder.mkdir(parents=True)
        self._library = work / "file_log.so"
        self._log, self._marks = work / "log", work / "marks"
        self._marks.touch()
        compiler = shutil.which("gcc")
        if compiler is None:
            raise FileNotFoundError("there is no gcc, which power cuts need to log what processes write")
        flags = ["-shared", "-fPIC", "-O1", "-o", str(self._library), str(_SOURCE), "-ldl", "-lpthread"]
        subprocess.run([compiler, *flags], check=True)

    @property
    def environment(self) -> dict[str, str]:
        """What the processes need in theirs."""
        return {
            "LD_PRELOAD": str(self._library),
            "FILE_LOG_FOLDER": str(self.folder),
            "FILE_LOG_FILE": str(self._log),
            "FILE_LOG_MARKS": str(self._marks),
        }

    def steps(self) -> list[Step]:
        """Returns what was done so far.

        Raises:
            RuntimeError: If something was done that is not logged.
        """
        steps = list(self._read())
        for step in steps:
            if step.kind is StepKind.UNKNOWN and not step.path.endswith("-shm"):  # SQLite's shared memory outlives no restart
                raise RuntimeError(f"{step.path} was changed by {step.other}, which is not logged")
        return steps

    def _read(self) -> Iterator[Step]:
        log, at = self._log.read_bytes(), 0
        while at < len(log):
            kind, _, file, offset, num_path, num_other, num_data = _HEAD.unpack_from(log, at)
            at += _HEAD.size
            path, other = log[at : at + num_path].decode(), log[at + num_path : at + num_path + num_other].decode()
            at += num_path + num_other
            kind = StepKind(kind)
            other = self._relative(other) if kind is StepKind.RENAME else other
            yield Step(kind, file, offset, self._relative(path), other, log[at : at + num_data])
            at += num_data

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self.folder) if path else ""


def mark(text: str) -> None:
    """Writes a mark into the log of this process."""
    path = os.environ["FILE_LOG_MARKS"]
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
