"""``dyorc profile``: where the time of a running server goes: a flame graph of each process, and the stages of its requests."""

import html
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer
from rich.console import Console
from rich.table import Column

from dyorc.cli.server_options import DEFAULT_URL, Ca, Key, Url, connect
from dyorc.cli.stacked_table import StackedTable
from dyorc.core.counts import count
from dyorc.errors import ConfigurationError
from dyorc.system.extras import missing_library
from dyorc.system.finite_option import finite

_MAX_REQUESTS = 200
"""Requests of the window whose stages are read."""
_SUFFIXES = {"flamegraph": "svg", "speedscope": "json"}
_START_S = 60.0
"""How much longer than its duration py-spy may take."""

_console = Console(soft_wrap=True, highlight=False)


class Process(NamedTuple):
    """A process of the server."""

    name: str
    pid: int


def profile(
    seconds: Annotated[float, typer.Option(callback=finite, min=0.1, help="How long to look.")] = 10.0,
    url: Url = DEFAULT_URL,
    key: Key = None,
    ca: Ca = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the graphs.")] = Path("dyorc-profile"),
    form: Annotated[
        Literal["flamegraph", "speedscope"], typer.Option("--format", help="SVG, or for https://www.speedscope.app.")
    ] = "flamegraph",
) -> None:
    """Samples all processes of a running server on this machine with py-spy, and says where its requests' time went."""
    tool = _py_spy()
    with connect(url, key, ca) as client:
        processes = processes_of(client.status())
        output.mkdir(parents=True, exist_ok=True)
        began_s = time.time()
        _console.print(f"Sampling {count(len(processes), 'process', 'processes')} for {seconds:g} s ...")
        failures = _sample(tool, processes, seconds, output, form)
        stages = _stages_since(client, began_s)
    index = output / "index.html"
    index.write_text(_page(processes, failures, stages, form))
    _show(stages)
    for process, reason in failures.items():
        _console.print(f"no graph of {process.name} (process {process.pid}): {reason}", style="red")
    if len(failures) == len(processes):
        raise ConfigurationError(f"no process could be sampled: {next(iter(failures.values()))}")
    _console.print(f"{count(len(processes) - len(failures), 'graph')}: {index}")


def _py_spy() -> str:
    """Returns the command.

    Raises:
        MissingLibraryError: If it is not installed.
    """
    of_environment = Path(sys.executable).with_name("py-spy")
    command = str(of_environment) if of_environment.exists() else shutil.which("py-spy")
    if command is None:
        raise missing_library("py-spy", "profile", "`dyorc profile`")
    return command


def processes_of(status: dict[str, Any]) -> list[Process]:
    """Returns the server's processes, from what `GET /status` says; those of the programs that are not also a cell's."""
    cells = [Process(f"cell {cell['cell']}", cell["pid"]) for cell in status.get("cells", ()) if cell["pid"]]
    processes = cells or [Process("server", status["pid"])]
    known = {process.pid for process in processes}
    for program, state in status["programs"].items():
        for number, replica in enumerate(state["replicas"].values()):
            if replica["pid"] not in known:
                known.add(replica["pid"])
                processes.append(Process(f"{program} {number}", replica["pid"]))
    return processes


# Sampling


def file_of(process: Process, form: str) -> str:
    """Returns the name of a process's graph."""
    name = "".join(sign if sign.isalnum() else "-" for sign in process.name)
    return f"{name}-{process.pid}.{_SUFFIXES[form]}"


def _sample(tool: str, processes: list[Process], seconds: float, folder: Path, form: str) -> dict[Process, str]:
    """Samples all of them at once. Returns why there is no graph of some."""
    running = {process: _start_sampler(tool, process, seconds, folder / file_of(process, form), form) for process in processes}
    reasons = {
        process: _wait_for_sampler(sampler, seconds, folder / file_of(process, form)) for process, sampler in running.items()
    }
    return {process: reason for process, reason in reasons.items() if reason}


def _start_sampler(tool: str, process: Process, seconds: float, path: Path, form: str) -> "subprocess.Popen[str]":
    path.unlink(missing_ok=True)
    command = [tool, "record", "--pid", str(process.pid), "--output", str(path), "--format", form, "--nonblocking", "--threads"]
    command += ["--duration", str(max(1, round(seconds)))]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _wait_for_sampler(running: "subprocess.Popen[str]", seconds: float, path: Path) -> str:
    """Waits for a sampler. Returns why there is no graph; nothing if there is one."""
    try:
        _, complaints = running.communicate(timeout=seconds + _START_S)
    except subprocess.TimeoutExpired:
        running.kill()
        running.communicate()
        return "py-spy did not end"
    return "" if path.exists() else _reason(complaints)


def _reason(complaints: str) -> str:
    if "Permission Denied" in complaints or "Operation not permitted" in complaints:
        return (
            "this user may not look into it. Run the command as the server's user with CAP_SYS_PTRACE, or as root; "
            "/proc/sys/kernel/yama/ptrace_scope says what is allowed here"
        )
    lines = [line.strip() for line in complaints.splitlines() if line.strip()]
    return lines[-1] if lines else "py-spy said nothing"


# Stages


def _stages_since(client: Any, began_s: float) -> Counter[str]:
    """Returns how many milliseconds the requests since then spent in each stage, and ``requests``, how many they were."""
    stages: Counter[str] = Counter()
    for request in client.requests(limit=_MAX_REQUESTS):
        if request["arrived_s"] >= began_s:
            stages["requests"] += 1
            for stage, spent_ms in client.request(request["request_id"])["stages"].items():
                stages[stage.removesuffix("_ms")] += spent_ms
    return stages


def _rows(stages: Counter[str]) -> list[tuple[str, str, str]]:
    num = stages["requests"]
    spent = [(stage, spent_ms) for stage, spent_ms in stages.most_common() if stage != "requests"]
    whole_ms = sum(spent_ms for _, spent_ms in spent)
    return [(stage, f"{spent_ms / num:.3f}", f"{spent_ms / whole_ms:.0%}") for stage, spent_ms in spent if whole_ms]


def _show(stages: Counter[str]) -> None:
    if not stages["requests"]:
        _console.print("No request came and ended meanwhile, or none is recorded (`telemetry.records`).")
        return
    table = StackedTable("stage", Column("ms per request", justify="right"), Column("share", justify="right"))
    for row in _rows(stages):
        table.add_row(*row)
    _console.print(f"{stages['requests']} requests:")
    _console.print(table)


def _page(processes: list[Process], failures: dict[Process, str], stages: Counter[str], form: str) -> str:
    rows = "".join(f"<tr><td>{stage}<td>{each}<td>{share}" for stage, each, share in _rows(stages))
    items: list[str] = []
    for process in processes:
        name = html.escape(f"{process.name} (process {process.pid})")
        if process in failures:
            items.append(f"<h2>{name}</h2><p>{html.escape(failures[process])}</p>")
        elif form == "flamegraph":
            file = file_of(process, form)
            items.append(f'<h2><a href="{file}">{name}</a></h2><object data="{file}" type="image/svg+xml" width="100%"></object>')
        else:
            items.append(f'<h2><a href="{file_of(process, form)}">{name}</a></h2>')
    table = f"<table><tr><th>stage<th>ms per request<th>share{rows}</table>"
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>DyOrc: profile</title>'
        "<style>body{font:16px sans-serif;margin:2em}td,th{text-align:left;padding:0 1em 0 0}</style>"
        f"<h1>Profile</h1><p>{stages['requests']} requests</p>{table}{''.join(items)}</html>\n"
    )
