"""Cells that the storm over chats kills, and which requests may fail with them."""

import os
import random
import re
import signal
import time
from collections.abc import Sequence
from typing import ClassVar

import psutil

from dyorc.testing import ServerProcess

_LINGER_S = 0.5
"""For so long after the end of a process, a connection that the kernel gave to it may still turn out to be cut."""


class Cells:
    """The cells of a server under a supervisor.

    Attributes:
        num_connections: How many connections the killed cells had, all together.
        num_again: How often two were killed at a time: never.
    """

    ENVIRONMENT: ClassVar = {
        # Kills follow one another within a minute, which is not what the growing delay is for.
        "DYORC_CELLS__RESTART_DELAY_S": "0.1",
        "DYORC_CELLS__MAX_RESTART_DELAY_S": "0.1",
    }

    def __init__(self, server: ServerProcess, chance: random.Random) -> None:
        self._server = server
        self._port = int(server.url.rpartition(":")[2])
        self._chance = chance
        self._harmful_until_s = 0.0
        self.num_connections = self.num_again = 0

    def strike(self) -> tuple[str, list[int]]:
        """Kills one. Returns a word for it, and which."""
        children = psutil.Process(self._server.process.pid).children()
        cell = self._chance.choice([child for child in children if child.status() != psutil.STATUS_ZOMBIE])
        self._harmful_until_s = float("inf")
        cell.suspend()  # so that its connections stay as they are counted
        connections = cell.net_connections("tcp")
        self.num_connections += sum(each.laddr.port == self._port and each.status == "ESTABLISHED" for each in connections)
        os.kill(cell.pid, signal.SIGKILL)
        self._wait_for(cell.pid)
        self._harmful_until_s = time.monotonic() + _LINGER_S
        return "cell", [cell.pid]

    def _wait_for(self, pid: int) -> None:
        """Waits until the supervisor has noticed."""
        self._server.wait_for(rf"\(process {pid}\) was ended")

    def excuses(self, since_s: float) -> bool:
        """Returns whether a request that began then and has just failed may have met a killed cell."""
        return since_s <= self._harmful_until_s

    def are_back(self, pids: Sequence[int]) -> bool:
        """Returns whether all cells that ended are ready again."""
        output = self._server.output
        is_ready: dict[str, bool] = {}
        for ready, ended in re.findall(
            r"^Cell (\d+) is ready again|^dyorc: cell (\d+) \(process \d+\) .*ended", output, re.MULTILINE
        ):
            is_ready[ready or ended] = bool(ready)
        return all(f"(process {pid}) was ended" in output for pid in pids) and all(is_ready.values())
