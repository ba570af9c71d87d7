"""Tables of what a server is doing now, from what its ``/live`` says. For ``dyorc top`` and ``dyorc status``. No I/O."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Column
from rich.text import Text

from dyorc.cli.server_options import time_of_day
from dyorc.cli.stacked_table import StackedTable

Snapshot = Mapping[str, Any]

_STATES = {
    "ready": "green",
    "parked": "green",
    "cold": "green",
    "off": "yellow",
    "starved": "red",
    "loading": "cyan",
    "starting": "yellow",
    "failing": "red",
}
_WARM, _PARKED = "ready", "parked"


def tables(now: Snapshot, before: Snapshot | None) -> Group:
    """Returns the tables of one moment.

    Args:
        before: An earlier moment: only batches since then are counted; None: all since the server's start.
    """
    return Group(_headline(now), Text(), _workflows(now), Text(), _programs(now, before), *_failures(now))


def _headline(now: Snapshot) -> Text:
    at = time_of_day(now["at_s"])
    workflows = now["workflows"].values()
    parts = [
        at,
        f"{sum(workflow['requests_per_s'] for workflow in workflows):.1f} requests/s",
        f"{sum(workflow['in_flight'] for workflow in workflows)} in flight",
    ]
    silent = [str(workflow["cell"]) for workflow in now["cells"] if workflow["pid"] is None]
    if len(now["cells"]) > 1:
        parts.append(f"{len(now['cells']) - len(silent)} processes")
    line = Text(" · ".join(parts), style="bold")
    if silent:
        line.append(f" · no answer from process {', '.join(silent)}", style="red")
    return line


def _workflows(now: Snapshot) -> StackedTable:
    numbers = [Column(name, justify="right") for name in ("requests/s", "failed/s", "p50 ms", "p99 ms", "in flight", "answered")]
    table = StackedTable("workflow", *numbers)
    for name, workflow in now["workflows"].items():
        times = (_ms(workflow["p50_ms"]), _ms(workflow["p99_ms"]))
        failed = Text(f"{workflow['failed_per_s']:.1f}", style="red" if workflow["failed_per_s"] else "")
        table.add_row(
            Text(name),
            f"{workflow['requests_per_s']:.1f}",
            failed,
            *times,
            str(workflow["in_flight"]),
            str(workflow["requests_total"]),
        )
    return table


def _programs(now: Snapshot, before: Snapshot | None) -> StackedTable:
    counts = ("warm", "parked", "wanted", "queued", "running", "calls/s")
    numbers = [Column(name, justify="right") for name in counts]
    batches = Column("batch: mean/most", justify="right")
    guesses = Column("guesses: right/wrong/run", justify="right")
    table = StackedTable("program", "state", *numbers, batches, "T(n) ms", guesses)
    for name, row in now["programs"].items():
        earlier = None if before is None else before["programs"].get(name)
        states = [replica["state"] for replica in row["replicas"]]
        wanted = f"{row['num_wanted']}+{row['num_parked_wanted']}" if row["num_parked_wanted"] else str(row["num_wanted"])
        table.add_row(
            Text(name), Text(row["state"], style=_STATES.get(row["state"], "")), str(states.count(_WARM)),
            str(states.count(_PARKED)), wanted, str(row["num_queued"]), str(row["num_running"]), f"{row['calls_per_s']:.1f}",
            _batch_of(row, earlier), _latency_of(row["latency_fit"]),
            f"{row['num_committed']}/{row['num_squashed']}/{row['num_guesses']}",
        )  # fmt: skip
    return table


def _failures(now: Snapshot) -> list[Text]:
    """Returns why programs fail, a line each."""
    return [Text(f"  {name}: {program['error']}", style="red") for name, program in now["programs"].items() if program["error"]]


def _batch_of(program: Mapping[str, Any], earlier: Mapping[str, Any] | None) -> str:
    """Returns the mean size of batches, and the largest."""
    counts = {int(size): count for size, count in program["batch_sizes"].items()}
    for size, count in ({} if earlier is None else earlier["batch_sizes"]).items():
        counts[int(size)] = max(0, counts.get(int(size), 0) - count)
    num_batches = sum(counts.values())
    if not num_batches:
        return "-"
    mean = sum(size * count for size, count in counts.items()) / num_batches
    return f"{mean:.1f}/{max(size for size, count in counts.items() if count)}"


def _latency_of(fit: Mapping[str, Any]) -> str:
    if fit["base_ms"] is None:
        return "-"
    return f"{fit['base_ms']:.3g} + {fit['per_call_ms']:.3g} n"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
