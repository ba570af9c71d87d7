"""What an arena takes, seen from outside: for people who look at a server's status."""

import os
from typing import NamedTuple

import numpy as np

from dyorc.transport.arena_file import ENTRY_WORDS, PAGE_BYTES, check_name, decode_layout

_BLOCK_BYTES = 512
"""The unit of ``st_blocks``."""


class ArenaUsage(NamedTuple):
    """Of one arena.

    Attributes:
        size_bytes: What it may take.
        used_bytes: Tensors that lie in it.
        resident_bytes: Memory taken and not returned.
    """

    size_bytes: int
    used_bytes: int
    resident_bytes: int


def usage_of(folder: str, name: str) -> ArenaUsage | None:
    """Returns the usage of an arena of this node; None if it is gone.

    Raises:
        TransportError: If it is not an arena.
    """
    check_name(name)
    try:
        descriptor = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        return usage_of_file(descriptor, name)
    finally:
        os.close(descriptor)


def usage_of_file(descriptor: int, name: str) -> ArenaUsage:
    """Returns the usage of an arena whose file is open.

    Raises:
        TransportError: If it is not an arena.
    """
    status = os.fstat(descriptor)
    layout = decode_layout(os.pread(descriptor, PAGE_BYTES, 0), name, status.st_size)
    entries = np.frombuffer(os.pread(descriptor, layout.num_slots * ENTRY_WORDS * 8, PAGE_BYTES), np.uint64)
    entries = entries.reshape(-1, ENTRY_WORDS)
    return ArenaUsage(layout.size_bytes, int(entries[entries[:, 0] != 0, 2].sum()), status.st_blocks * _BLOCK_BYTES)
