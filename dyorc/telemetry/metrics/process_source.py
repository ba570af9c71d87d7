"""Reads what processes take of this machine, from /proc. Cost: 0.1 ms per process."""

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass

from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.readings import Readings

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_UTIME, _STIME = 11, 12
"""Places in /proc/PID/stat, counted from behind the command's name, which may hold spaces."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process takes."""

    cpu_s: float
    resident_bytes: int
    num_files: int


def usage_of(pid: int) -> Usage | None:
    """Returns what a process takes; None if it is gone, or somebody else's."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        with open(f"/proc/{pid}/statm") as file:
            pages = int(file.read().split()[1])
        num_files = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    return Usage((int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S, pages * _PAGE_BYTES, num_files)


def read_own(readings: Readings) -> None:
    """Adds what this process takes."""
    usage = usage_of(os.getpid())
    if usage is not None:
        readings.add(catalogue.CPU, usage.cpu_s)
        readings.add(catalogue.MEMORY, usage.resident_bytes)
        readings.add(catalogue.FILES, usage.num_files)
        readings.add(catalogue.MAX_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


class ReplicaProcesses:
    """What the processes of replicas take. The processor time of those that have ended stays counted."""

    def __init__(self) -> None:
        self._cpu_s: dict[str, dict[int, float]] = {}
        self._ended_cpu_s: dict[str, float] = {}

    def read(self, pids: Mapping[str, set[int]], readings: Readings) -> None:
        """Adds what replicas take.

        Args:
            pids: The processes on this machine, by program; this one is left out.
        """
        for program in pids:
            usages = {pid: usage for pid in pids[program] - {os.getpid()} if (usage := usage_of(pid)) is not None}
            self._note(program, {pid: usage.cpu_s for pid, usage in usages.items()})
            cpu_s = self._ended_cpu_s.get(program, 0.0) + sum(self._cpu_s[program].values())
            readings.add(catalogue.REPLICA_CPU, cpu_s, program)
            readings.add(catalogue.REPLICA_MEMORY, sum(usage.resident_bytes for usage in usages.values()), program)
            readings.add(catalogue.REPLICA_FILES, sum(usage.num_files for usage in usages.values()), program)

    def _note(self, program: str, cpu_s: dict[int, float]) -> None:
        for pid, last_s in self._cpu_s.get(program, {}).items():
            if cpu_s.get(pid, -1.0) < last_s:  # it has ended, and its number may be another's by now
                self._ended_cpu_s[program] = self._ended_cpu_s.get(program, 0.0) + last_s
        self._cpu_s[program] = cpu_s
