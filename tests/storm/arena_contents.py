"""The contents of the folder of arenas, read from the files themselves."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dyorc.transport.arena_file import ENTRY_WORDS, PAGE_BYTES, decode_layout


@dataclass(frozen=True)
class ArenaFile:
    """An arena: its owner, and the bytes of each published block by its number."""

    name: str
    pid: int
    blocks: dict[int, int]


def read_arenas(folder: str) -> list[ArenaFile]:
    """Returns all arenas of a folder."""
    found: list[ArenaFile] = []
    for path in Path(folder).iterdir():
        try:
            with path.open("rb") as file:
                layout = decode_layout(file.read(PAGE_BYTES), path.name, os.fstat(file.fileno()).st_size)
                file.seek(PAGE_BYTES)
                table = np.frombuffer(file.read(layout.num_slots * ENTRY_WORDS * 8), np.uint64).reshape(-1, ENTRY_WORDS)
        except FileNotFoundError:
            continue  # its owner has just been swept away
        found.append(ArenaFile(path.name, layout.pid, {int(row[0]): int(row[2]) for row in table[table[:, 0] != 0]}))
    return found


def deleted_arenas_mapped(folder: str, pids: Iterable[int]) -> dict[int, set[str]]:
    """Returns, by process, the arenas that it keeps in memory although they no longer have a name."""
    found: dict[int, set[str]] = {}
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        except OSError:
            continue
        names = {Path(line.split()[-2]).name for line in lines if folder in line and line.endswith("(deleted)")}
        names = {name for name in names if not name.startswith("#")}  # so the kernel calls what its owner made without a name
        if names:
            found[pid] = names
    return found
