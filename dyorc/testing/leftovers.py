"""Finds what belongs to a server that runs or has run: its processes, temporary files and shared memory. Linux only.

Its processes carry a mark in their environment. Every process that they start inherits it, in any session or group.
What is made in shared memory is named by its owner, since several runs of tests or benchmarks may share a machine.
"""

import contextlib
import os
import re
import signal
import uuid
from pathlib import Path

OWNER = "OWNER_OF_SERVERS_OF_DYORC"
"""A variable of the environment: the process that owns what its descendants make in shared memory. By default, each owns its
own."""
_NAME = re.compile(r"\bof-(\w+)-")
_MARK = "SERVER_PROCESS_OF_DYORC"
_ARENA_PREFIX = "dyorc-arena-"
SHARED_MEMORY = Path("/dev/shm")


def own_name() -> str:
    """Returns a new name for something in shared memory. No server uses names that begin like it."""
    return f"of-{_owner()}-{uuid.uuid4().hex[:8]}"


def is_of_another(path: str) -> bool:
    """Returns whether its name says that another process owns it."""
    match = _NAME.search(path)
    return match is not None and match[1] != _owner()


def _owner() -> str:
    return os.environ.get(OWNER, str(os.getpid()))


class ServerLeftovers:
    """Finds the traces of one server. Make it before the server starts.

    Args:
        mark: The mark that the server's processes carry.
        folder: The folder of its temporary files.
        arenas: The folder of its arenas, in shared memory.
    """

    def __init__(self, mark: str, folder: Path, arenas: Path) -> None:
        self.folder = folder
        self.arenas = arenas
        self.environment = {_MARK: mark, "TMPDIR": str(folder), "DYORC_TRANSPORT__ARENA_FOLDER": str(arenas)}
        self._needle = f"\0{_MARK}={mark}\0".encode()
        self._shared_before = _shared_memory()

    def pids(self) -> list[int]:
        """Returns its living processes. A zombie does not count: its environment is gone."""
        pids: list[int] = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # it is gone, or belongs to another user
                if self._needle in b"\0" + path.read_bytes() + b"\0":
                    pids.append(int(path.parent.name))
        return sorted(pids)

    def kill_processes(self) -> None:
        """Sends SIGKILL to each of its processes."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def left(self) -> list[str]:
        """Returns a line for each of its processes, files and objects in shared memory."""
        processes = [f"process {pid} {_command(pid)}" for pid in self.pids()]
        files = [f"file {path}" for path in sorted(self.folder.iterdir())]
        arenas = [f"shared memory {path}" for path in sorted(self.arenas.iterdir())]
        new = _shared_memory() - self._shared_before
        shared = [f"shared memory {SHARED_MEMORY / name}" for name in sorted(new) if not _is_mapped(name)]
        return [*processes, *files, *arenas, *shared]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:120].strip()
    except OSError:
        return "(gone)"


def _shared_memory() -> set[str]:
    """Returns the names of files there, except arenas, since this server's have a folder of their own, and what others own."""
    paths = SHARED_MEMORY.iterdir() if SHARED_MEMORY.is_dir() else ()
    names = {path.name for path in paths if path.is_file() and not path.name.startswith(_ARENA_PREFIX)}
    return {name for name in names if not is_of_another(name)}


def _is_mapped(name: str) -> bool:
    """Returns whether a living process maps the file. If so, another server owns it: this one's processes are listed anyway."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if f"{SHARED_MEMORY}/{name}" in maps.read_text():
                return True
    return False
