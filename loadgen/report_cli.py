"""``python -m loadgen report``: makes a page of results, on the command line."""

from pathlib import Path
from typing import Annotated

import typer

from dyorc.core.counts import count
from dyorc.system.output_option import writable
from loadgen import options


def report_command(
    results: Annotated[list[Path], typer.Argument(help="Files that run, sweep or compare wrote (--out).")],
    out: Annotated[Path, typer.Option("--out", "-o", callback=writable, help="The HTML file to write.")] = Path("report.html"),
    name: Annotated[str, typer.Option("--title", help="The page's heading.")] = "Load test",
) -> None:
    """Makes one self-contained HTML page of results."""
    from loadgen.report.page import page
    from loadgen.report.reading import read_results

    with options.errors_as_one_line():
        loaded = [result for path in results for result in read_results(path)]
        out.write_text(page(loaded, heading=name), encoding="utf-8")
    typer.echo(f"{count(len(loaded), 'result')} in {out}")
