"""What a server takes, measured from outside: memory, descriptors and threads of its processes, files, its store and its log.

Linux only.
"""

import contextlib
import os
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from dyorc.testing import ServerProcess

RAY = "Ray"
"""Ray's own processes. They are measured, and not judged: they are not ours to mend."""
_ROLES = (
    ("replicas", re.compile(r"ray::ServeReplica")),
    (RAY, re.compile(r"^ray::|/ray/|^ray ")),
    ("cells", re.compile(r"dyorc\.supervisor\.cell_main")),
    ("supervisor", re.compile(r"dyorc\.supervisor")),
    ("replicas", re.compile(r"dyorc\.replica")),
    ("server", re.compile(r"dyorc\.cli\.main")),
)
"""Of processes, by their command lines; the first that fits counts. Python's own helpers fit none."""
_OTHERS = "others"
_HTTP_TIMEOUT_S = 30.0
_SECTOR_BYTES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement.

    Attributes:
        at_s: When, since the beginning.
        sizes: By the series' name.
    """

    at_s: float
    sizes: Mapping[str, float]


@dataclass
class Sampler:
    """Measures a server.

    Attributes:
        samples: What was measured.
        pids: The processes that were seen, by role.
    """

    server: ServerProcess
    store: Path
    samples: list[Sample] = field(default_factory=list[Sample])
    pids: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def measure(self, at_s: float, **others: float) -> Sample:
        """Measures once, some hundredths of a second; on any thread."""
        sizes: dict[str, float] = {**self._processes(), **self._files(), **self._metrics(), **others}
        sample = Sample(at_s=at_s, sizes=sizes)
        self.samples.append(sample)
        return sample

    def _processes(self) -> dict[str, float]:
        sums: defaultdict[str, float] = defaultdict(float)
        for pid in self.server.pids():
            process = Path(f"/proc/{pid}")
            with contextlib.suppress(OSError, ValueError):  # it has just ended
                role = _role_of((process / "cmdline").read_bytes())
                memory = _fields(process / "smaps_rollup")
                num_threads = int(_fields(process / "status")["Threads"])
                descriptors = [os.readlink(path) for path in (process / "fd").iterdir()]
                num_sockets = sum(target.startswith("socket:") for target in descriptors)
                for name in (role, "all") if role != RAY else (role,):
                    sums[f"{name}: RSS bytes"] += memory["Rss"] * 1024
                    sums[f"{name}: PSS bytes"] += memory["Pss"] * 1024
                    sums[f"{name}: threads"] += num_threads
                    sums[f"{name}: descriptors"] += len(descriptors) - num_sockets
                    sums[f"{name}: sockets"] += num_sockets
                    sums[f"{name}: processes"] += 1
                self.pids[role].add(pid)
        return sums

    def _files(self) -> dict[str, float]:
        arenas = _sizes_in(self.server.arena_folder)
        temporary = _sizes_in(self.server.temporary_folder)
        return {
            "arenas: files": len(arenas),
            "arenas: bytes": sum(arenas),
            "temporary folder: files": len(temporary),
            "temporary folder: bytes": sum(temporary),
            "store: bytes": _size(self.store),
            "store's log: bytes": _size(self.store.with_name(f"{self.store.name}-wal")),
            "server's log: bytes": sum(map(len, list(self.server.lines))),
        }

    def _metrics(self) -> dict[str, float]:
        with contextlib.suppress(httpx.HTTPError):
            text = httpx.get(f"{self.server.url}/metrics", timeout=_HTTP_TIMEOUT_S, trust_env=False).text
            return {"metrics: series": sum(not line.startswith("#") for line in text.splitlines())}
        return {}


def _role_of(command: bytes) -> str:
    text = command.replace(b"\0", b" ").decode(errors="replace")
    return next((role for role, pattern in _ROLES if pattern.search(text)), _OTHERS)


def _fields(path: Path) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r"^(\w+):\s+(\d+)", path.read_text(), re.MULTILINE)}


def _sizes_in(folder: Path) -> list[int]:
    """Returns the bytes that each file takes on its disk, or in memory: arenas have holes."""
    sizes: list[int] = []
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            status = path.stat()
            if path.is_file() and not path.is_symlink():
                sizes.append(_SECTOR_BYTES * status.st_blocks)
    return sizes


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
