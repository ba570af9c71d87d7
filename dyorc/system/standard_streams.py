"""Standard streams that do not end a process: open, able to take any text and, for servers, safe to write to without a reader.

For the command line, supervisors and cells, before they start threads. Only the standard library.
"""

import io
import os
import sys

_DESCRIPTORS = (0, 1, 2)


def repair() -> None:
    """Opens the streams that this process was started without, and makes output escape characters that its encoding lacks.

    The next file or socket to be opened gets a closed descriptor: output would go into a socket, and libuv aborts when it closes
    a standard descriptor.
    """
    for descriptor in _DESCRIPTORS:
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDONLY if descriptor == 0 else os.O_WRONLY)  # takes the lowest free number
            os.set_inheritable(opened, True)  # a supervisor's process comes by exec
    sys.stdin = sys.stdin or io.TextIOWrapper(io.FileIO(0, "r", closefd=False))
    sys.stdout = sys.stdout or _text(io.FileIO(1, "w", closefd=False))
    sys.stderr = sys.stderr or _text(io.FileIO(2, "w", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def outlive_readers() -> None:
    """Lets this process go on when its output cannot be written: the pipe's reader has gone, or the file's disk is full."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):  # not one that a test or a notebook has put there
            stream.flush()
            setattr(sys, name, _text(_Lossy(descriptor, "w", closefd=False), stream.encoding))


class _Lossy(io.FileIO):
    """A file that drops what cannot be written."""

    def write(self, data: "io.BufferedIOBase | bytes | memoryview", /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        try:
            written = super().write(data)  # pyright: ignore[reportArgumentType]
        except OSError:
            written = None
        return memoryview(data).nbytes if written is None else written  # pyright: ignore[reportArgumentType]


def _text(raw: io.FileIO, encoding: str | None = None) -> io.TextIOWrapper:
    buffered = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, encoding=encoding, errors="backslashreplace", line_buffering=True)
