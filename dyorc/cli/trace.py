"""``dyorc trace``: the last seconds of a running server, as a file for Perfetto."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dyorc.cli.server_options import DEFAULT_URL, Ca, Key, Url, connect
from dyorc.system.finite_option import finite
from dyorc.system.output_option import writable

_console = Console(soft_wrap=True, highlight=False)


def trace(
    seconds: Annotated[float, typer.Option(callback=finite, min=0.001, max=600, help="How far back.")] = 5.0,
    output: Annotated[Path, typer.Option("--output", "-o", callback=writable, help="The file to write.")] = Path("trace.json"),
    url: Url = DEFAULT_URL,
    key: Key = None,
    ca: Ca = None,
) -> None:
    """Writes the last seconds' requests and batches in Chrome's trace format; open the file in https://ui.perfetto.dev."""
    with connect(url, key, ca) as client:
        document = client.trace(seconds)
    output.write_text(json.dumps(document))
    facts = document["otherData"]
    _console.print(f"{output}: {facts['num_requests']} requests of the last {seconds:g} s")
    if facts["num_left_out"]:
        _console.print(f"{facts['num_left_out']} earlier ones were left out; ask for fewer seconds", style="yellow")
    if facts["missing_cells"]:
        _console.print(f"cells that did not answer: {', '.join(map(str, facts['missing_cells']))}", style="yellow")
