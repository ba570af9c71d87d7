"""Writes a simulation as Chrome's trace events, which Perfetto shows: devices and channels as rows, memory as curves.

Source: "Trace Event Format", Google, 2016: complete events (X), counters (C) and metadata (M).
"""

from typing import Any

from dyorc.planner.cluster import Cluster
from dyorc.planner.simulate.simulation import Simulation

_DEVICES, _CHANNELS = 1, 2
_US_PER_S = 1e6


def to_chrome_trace(simulation: Simulation, cluster: Cluster | None = None) -> dict[str, Any]:
    """Returns the trace as an object for a JSON file.

    Args:
        simulation: What to show.
        cluster: Where it ran: names the rows of devices.
    """
    channels: dict[tuple[int, ...], int] = {}
    events: list[dict[str, Any]] = []
    for event in simulation.events:
        row = channels.setdefault(event.ranks, len(channels)) if event.is_communication else event.ranks[0]
        events.append(
            {
                "ph": "X",
                "name": event.name,
                "pid": _CHANNELS if event.is_communication else _DEVICES,
                "tid": row,
                "ts": event.start_s * _US_PER_S,
                "dur": (event.end_s - event.start_s) * _US_PER_S,
                "args": {"step": event.step},
            }
        )
    for rank, history in enumerate(simulation.memory):
        for time_s, num_bytes in history:
            counter = {"ph": "C", "name": f"memory of rank {rank}", "pid": _DEVICES, "ts": time_s * _US_PER_S}
            events.append({**counter, "args": {"bytes": num_bytes}})
    return {"traceEvents": [*_names(simulation, cluster, channels), *events], "displayTimeUnit": "ms"}


def _names(simulation: Simulation, cluster: Cluster | None, channels: dict[tuple[int, ...], int]) -> list[dict[str, Any]]:
    rows = [_name("process_name", _DEVICES, 0, "devices"), _name("process_name", _CHANNELS, 0, "channels")]
    for rank in range(len(simulation.busy_s)):
        device = f" ({cluster.devices[rank].name} on {cluster.devices[rank].machine})" if cluster else ""
        rows.append(_name("thread_name", _DEVICES, rank, f"rank {rank}{device}"))
    for ranks, row in channels.items():
        rows.append(_name("thread_name", _CHANNELS, row, f"ranks {', '.join(map(str, ranks))}"))
    return rows


def _name(kind: str, process: int, row: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": row, "args": {"name": name}}
