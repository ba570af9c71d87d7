"""What a test has left behind: descriptors, threads, processes, shared memory, temporary folders.

`no_leaks` compares before and after. Things of other processes on the same machine do not count: an entry in shared memory or in
the temporary folder that appeared meanwhile is a leak unless a living process that is not ours holds it.
"""

import contextlib
import gc
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

_POLL_S = 0.02
_SHARED_MEMORY = Path("/dev/shm")
_FOLDER_PREFIX = "dyorc-"
_SHARED_KINDS = ("shared memory", "temporary folder")


@dataclass(frozen=True)
class Footprint:
    """Everything of one kind that may leak, by kind, each with a line for people."""

    things: Mapping[str, Mapping[str, str]]

    @classmethod
    def now(cls) -> "Footprint":
        """What this process, and the machine on its behalf, holds."""
        return cls(
            {
                "descriptor": _descriptors(),
                "thread": _threads(),
                "process": {str(child.pid): _describe(child) for child in psutil.Process().children(recursive=True)},
                _SHARED_KINDS[0]: {path.name: str(path) for path in _SHARED_MEMORY.iterdir()} if _SHARED_MEMORY.is_dir() else {},
                _SHARED_KINDS[1]: {path.name: str(path) for path in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*")},
            }
        )

    def since(self, before: "Footprint") -> list[str]:
        """What is here now and was not `before`, without what belongs to others."""
        new = [
            (kind, text) for kind, things in self.things.items() for key, text in things.items() if key not in before.things[kind]
        ]
        return [f"{kind}: {text}" for kind, text in new if kind not in _SHARED_KINDS or not _is_of_others(text)]


@contextlib.contextmanager
def no_leaks(timeout_s: float = 10.0) -> Iterator[None]:
    """Fails if what runs inside leaves something behind; what ends on its own within `timeout_s` seconds does not count.

    Raises:
        AssertionError: Names each thing.
    """
    before = Footprint.now()
    yield
    gc.collect()
    deadline_s = time.monotonic() + timeout_s
    while left := Footprint.now().since(before):
        if time.monotonic() > deadline_s:
            raise AssertionError("left behind: " + "; ".join(left))
        time.sleep(_POLL_S)


def _descriptors() -> dict[str, str]:
    found: dict[str, str] = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{number}")
            if target != f"/proc/{os.getpid()}/fd":
                found[f"{number} {target}"] = f"{number} -> {target}"
    return found


def _threads() -> dict[str, str]:
    found: dict[str, str] = {}
    for number in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            found[number] = f"{number} {Path(f'/proc/self/task/{number}/comm').read_text().strip()}"
    return found


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:100]}"
    except psutil.Error:
        return f"{process.pid} (gone)"


def _is_of_others(path: str) -> bool:
    """Whether a living process that does not descend from this one has the file, or one below it, open or mapped."""
    ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    for process in psutil.process_iter():
        if process.pid in ours:
            continue
        with contextlib.suppress(psutil.Error, OSError):
            if any(file.path.startswith(path) for file in process.open_files()):
                return True
            if path in Path(f"/proc/{process.pid}/maps").read_text():
                return True
    return False
