"""The time of day of all processes of a shape, which can jump; how much time passes is not changed by that.

By a library of our own (`wall_clock.c`) that is preloaded. With libfaketime, a process that is killed leaves shared memory.
"""

import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Self

_SOURCE = Path(__file__).with_suffix(".c")


class WallClock:
    """It can jump while entered.

    Attributes:
        can_move: Whether it can: there is a C compiler.
        settings: What processes need in their environment.
    """

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
        self._offset_s = 0
        self.move(0)
        library = self._folder / "wall_clock.so"
        compiler = shutil.which("gcc")
        self.can_move = compiler is not None
        if compiler is not None:
            subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"], check=True)
        settings = {"LD_PRELOAD": str(library), "WALL_CLOCK_OFFSET": str(self._folder / "offset")}
        self.settings = settings if self.can_move else {}
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder)

    def move(self, by_s: int) -> None:
        """Puts the clock forward, or back; all processes notice at once."""
        self._offset_s += by_s
        path = self._folder / "offset"
        with path.open("r+b" if path.exists() else "wb") as file:  # the same file: processes have mapped it
            file.write(struct.pack("=q", self._offset_s))
