"""What ``dyorc serve`` prints while programs load: a live table, or one line per change if the output is not a terminal."""

import time
from collections.abc import AsyncIterator, Mapping

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from dyorc.models.status import ProgramState, ProgramStatus, StatusBoard

_COLOURS = {
    ProgramState.STARTING: "yellow",
    ProgramState.LOADING: "cyan",
    ProgramState.READY: "green",
    ProgramState.PARKED: "green",
    ProgramState.COLD: "green",
    ProgramState.OFF: "yellow",
    ProgramState.STARVED: "red",
    ProgramState.FAILING: "red",
}

_REFRESHES_PER_S = 8


async def show_progress(console: Console, status: StatusBoard, changes: AsyncIterator[Mapping[str, str]]) -> None:
    """Shows the state of each program until all are ready.

    Args:
        changes: Yields Serve's complaints, by program, at every change; ends when all programs are ready.
    """
    if console.is_terminal:
        with Live(_table(status, {}), console=console, refresh_per_second=_REFRESHES_PER_S) as live:
            due_s = 0.0
            async for complaints in changes:
                if (now_s := time.monotonic()) >= due_s:  # a table of many programs is not made for each of their changes
                    live.update(_table(status, complaints))
                    due_s = now_s + 1 / _REFRESHES_PER_S
            live.update(_table(status, {}))
        return
    lines = _Lines(console, status)
    async for complaints in changes:
        lines.print_changes(complaints)
    lines.print_changes({})


class _Lines:
    """A line for each program, printed whenever it changes. Looks only at what has changed, not at hundreds of programs for each
    change of one."""

    def __init__(self, console: Console, status: StatusBoard) -> None:
        self._console = console
        self._status = status
        self._num_changes = 0
        self._complaints: Mapping[str, str] | None = None  # so that the first look is at all programs
        self._shown: dict[str, str] = {}

    def print_changes(self, complaints: Mapping[str, str]) -> None:
        self._num_changes, names = self._status.changed_since(self._num_changes)
        if complaints != self._complaints:
            self._complaints, names = complaints, list(self._status.programs)
        for name in names:
            program = self._status.programs[name]
            text = f"  {name}: {program.state.value} {_trouble_of(program, complaints)}".rstrip()
            if self._shown.get(name) != text:
                self._shown[name] = text
                self._console.print(text, highlight=False, markup=False)


def _table(status: StatusBoard, complaints: Mapping[str, str]) -> Table:
    table = Table("program", "state", "replicas", "for", "", box=None, padding=(0, 2))
    for program in status.programs.values():
        table.add_row(
            program.name,
            f"[{_COLOURS[program.state]}]{program.state.value}[/]",
            f"{len(program.replica_pids)}/{program.num_wanted}",
            f"{time.monotonic() - program.since_s:.0f} s",
            escape(_trouble_of(program, complaints)),
        )
    return table


def _trouble_of(program: ProgramStatus, complaints: Mapping[str, str]) -> str:
    """Returns what keeps a program from being ready. Complaints are fetched only every few seconds, so they may be outdated."""
    complaint = "" if program.is_as_wanted else complaints.get(program.name, "")
    return program.error or complaint
