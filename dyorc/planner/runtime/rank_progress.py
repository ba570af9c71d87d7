"""How far each rank is, in a file that all ranks of a group and their parent map: so even a rank that was killed has said it.

    bytes 16 r .. 16 r + 8     the number of the run, from 1
    bytes 16 r + 8 .. 16 r + 16     the number of the plan's step in it

Each rank writes only its own place, and the parent only reads, for people.
"""

import mmap
import struct
from pathlib import Path

_PLACE = struct.Struct("<qq")


class RankProgress:
    """The file."""

    def __init__(self, path: Path, num_ranks: int) -> None:
        if not path.exists():
            path.write_bytes(bytes(_PLACE.size * num_ranks))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _PLACE.size * num_ranks)

    def note(self, rank: int, run: int, step: int) -> None:
        """Records how far a rank is."""
        _PLACE.pack_into(self._memory, _PLACE.size * rank, run, step)

    def of(self, rank: int) -> tuple[int, int]:
        """Returns the number of a rank's run, and its step in it."""
        run, step = _PLACE.unpack_from(self._memory, _PLACE.size * rank)
        return run, step

    def close(self) -> None:
        """Unmaps the file."""
        self._memory.close()
