"""Parts of the page that only programs on emulated accelerators have."""

from __future__ import annotations

from statistics import median

from benchmarks.devices.times import DeviceModel, on_devices
from benchmarks.table.records import OUR_MODES, Cell, Table
from benchmarks.table.tables import markdown, plain, shown_name
from loadgen.tables import milliseconds

_ABOUT_MODELS = """A batch of n takes T(n) = b + a n milliseconds. "Off by" is how far the line is from a published time at most.
An emulated device really is occupied that long, and no other batch runs on it meanwhile; the processor is free. The models stand
for the programs of the first table, whose results are returned, so requests take the same course in both."""
_ABOUT_PREDICTIONS = """What [`dyorc simulate`'s engine](../how-to/simulation.md) says of each cell without any server, from T(n),
the same arrivals and the same decisions, and by how much that is below or above what was measured. The simulator knows queues,
batches and guesses. It knows nothing of HTTP, of the server's own work, or of cores that are shared with the load generator."""


def models_table(table: Table) -> list[str]:
    """Returns what stands for each program, and where its times were published."""
    rows: list[list[str]] = []
    models: dict[str, DeviceModel] = {}
    for workload in table.workloads:
        for program, model in on_devices(workload.name).models.items():
            models[model.name] = model
            rows.append([plain(workload.name), plain(program), plain(model.what), _ms(model.time.base_s), _ms(model.time.item_s)])
    sources = "\n".join(
        f"* {plain(model.what)}: {plain(model.source)}{f'; off by {model.max_deviation:.0%}' if model.max_deviation else ''}"
        for model in models.values()
    )
    return [_ABOUT_MODELS, markdown(["workload", "program", "stands for", "b", "a"], rows), sources]


def predictions(table: Table) -> list[str]:
    """Returns what the simulator said of DyOrc's cells, and its error; nothing if it was not asked."""
    cells = [cell for cell in table.cells if cell.system in OUR_MODES and cell.predicted_p50_ms is not None]
    if not cells:
        return []
    rows = [
        [f"{plain(cell.workload)}, {cell.load}", plain(shown_name(cell.system)), *_beside(cell, "p50"), *_beside(cell, "p99")]
        for cell in cells
    ]
    head = ["", "mode", "p50", "simulated", "error", "p99", "simulated", "error"]
    return ["## What the simulator predicts", _ABOUT_PREDICTIONS, _errors(cells), markdown(head, rows)]


def _errors(cells: list[Cell]) -> str:
    said: list[str] = []
    for mode in OUR_MODES:
        for figure in ("p50", "p99"):
            errors = [abs(_error(cell, figure)) for cell in cells if cell.system == mode]
            if errors:
                said.append(f"{shown_name(mode)}, {figure}: {median(errors):.0%}")
    return f"Median error: {'; '.join(said)}."


def _beside(cell: Cell, figure: str) -> list[str]:
    measured, said = getattr(cell, f"{figure}_ms"), getattr(cell, f"predicted_{figure}_ms")
    return [milliseconds(measured), milliseconds(said), f"{_error(cell, figure):+.0%}"]


def _error(cell: Cell, figure: str) -> float:
    return getattr(cell, f"predicted_{figure}_ms") / getattr(cell, f"{figure}_ms") - 1


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}"
