"""What a test has left behind: descriptors, threads, processes, shared memory, temporary folders.

`no_leaks` compares before and after. Things of other processes on the same machine do not count: an entry in shared memory or in
the temporary folder that appeared meanwhile is a leak unless its name says that another owns it, or a living process that is not
ours holds it.
"""

import contextlib
import faulthandler
import gc
import os
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from dyorc.testing.leftovers import SHARED_MEMORY, is_of_another
from tests.shared_folders import arena_folder

_POLL_S = 0.02
_FOLDER_PREFIX = "dyorc-"
_POOL_OF_GRPC = "event_engine"
"""The name of its threads. It starts more when the machine is busy, and an idle one ends after 20 s only."""
_SHARED_KINDS = ("shared memory", "temporary folder")


@dataclass(frozen=True)
class Footprint:
    """Everything of one kind that may leak, by kind, each with a line for people."""

    things: Mapping[str, Mapping[str, str]]

    @classmethod
    def now(cls) -> "Footprint":
        """Returns what this process, and the machine on its behalf, holds."""
        return cls(
            {
                "descriptor": _descriptors(),
                "thread": _threads(),
                "process": {str(child.pid): _describe(child) for child in psutil.Process().children(recursive=True)},
                _SHARED_KINDS[0]: _shared_memory(),
                _SHARED_KINDS[1]: {path.name: str(path) for path in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*")},
            }
        )

    def since(self, before: "Footprint") -> list[str]:
        """Returns what is here now and was not `before`, without what belongs to others."""
        new = [
            (kind, text) for kind, things in self.things.items() for key, text in things.items() if key not in before.things[kind]
        ]
        held = _held_by_others([text for kind, text in new if kind in _SHARED_KINDS])
        return [f"{kind}: {text}" for kind, text in new if text not in held]


@contextlib.contextmanager
def no_leaks(timeout_s: float = 10.0) -> Iterator[None]:
    """Fails if what runs inside leaves something behind; what ends on its own within `timeout_s` seconds does not count.

    Raises:
        AssertionError: Names each thing.
    """
    before = Footprint.now()
    yield
    faulthandler.cancel_dump_traceback_later()  # pytest's watchdog is a thread of each test, the last one's is new
    gc.collect()
    deadline_s = time.monotonic() + timeout_s
    left = Footprint.now().since(before)
    while left := [one for one in Footprint.now().since(before) if one in left]:  # what comes later is of others
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


def _shared_memory() -> dict[str, str]:
    """Returns the arenas of this process, and all entries except arenas of others."""
    found = [*Path(arena_folder()).iterdir()]
    if SHARED_MEMORY.is_dir():
        found += [path for path in SHARED_MEMORY.iterdir() if not path.name.startswith("dyorc-arena-")]
    return {path.name: str(path) for path in found}


def _threads() -> dict[str, str]:
    found: dict[str, str] = {}
    for number in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/self/task/{number}/comm").read_text().strip()
            if name != _POOL_OF_GRPC:
                found[number] = f"{number} {name}"
    return found


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:100]}"
    except psutil.Error:
        return f"{process.pid} (gone)"


def _held_by_others(paths: Collection[str]) -> set[str]:
    """Returns those that another owns by their name, or that a living process which does not descend from this one has opened or
    mapped, or a file below them.
    """
    held = {path for path in paths if is_of_another(path)}
    paths = [path for path in paths if path not in held]
    if not paths:
        return held
    ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    for process in psutil.process_iter():
        if process.pid in ours:
            continue
        with contextlib.suppress(psutil.Error, OSError):
            files = [file.path for file in process.open_files()]
            maps = Path(f"/proc/{process.pid}/maps").read_text()
            held.update(path for path in paths if path in maps or any(file.startswith(path) for file in files))
    return held
