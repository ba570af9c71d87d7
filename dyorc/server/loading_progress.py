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


async def show_progress(console: Console, status: StatusBoard, changes: AsyncIterator[Mapping[str, str]]) -> None:
    """Shows the state of each program until all are ready.

    Args:
        changes: Yields Serve's complaints, by program, at every change; ends when all programs are ready.
    """
    if console.is_terminal:
        with Live(_table(status, {}), console=console, refresh_per_second=8) as live:
            async for complaints in changes:
                live.update(_table(status, complaints))
            live.update(_table(status, {}))
        return
    shown: dict[str, str] = {}
    async for complaints in changes:
        _print_changes(console, status, complaints, shown)
    _print_changes(console, status, {}, shown)


def _print_changes(console: Console, status: StatusBoard, complaints: Mapping[str, str], shown: dict[str, str]) -> None:
    for program in status.programs.values():
        text = f"  {program.name}: {program.state.value} {_trouble_of(program, complaints)}".rstrip()
        if shown.get(program.name) != text:
            shown[program.name] = text
            console.print(text, highlight=False, markup=False)


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
