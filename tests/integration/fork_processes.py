"""The processes of fork servers, found by their folder."""

import contextlib
from pathlib import Path

import psutil


def fork_processes(folder: str | Path) -> list[psutil.Process]:
    """Returns the fork servers in ``forks`` of a folder, and all processes forked from them, without zombies."""
    processes: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if f"{folder}/forks" in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes
