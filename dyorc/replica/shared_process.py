"""What the programs of a group share in a replica's process."""

import threading

from dyorc.replica.program_loops import ProgramLoops
from dyorc.replica.resident_table import ResidentTable


class SharedProcess:
    """A process that runs the programs of one group, each on a thread of its own, one batch at a time.

    Attributes:
        turn: Held by the program that loads or runs a batch, also while its results wait for room.
        residents: What all of them hold.
        loops: Where those run that wait or yield.
    """

    def __init__(self, name: str) -> None:
        self.turn = threading.RLock()
        self.residents = ResidentTable(name)
        self.loops = ProgramLoops()
