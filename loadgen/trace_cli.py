"""``python -m loadgen trace``: draws traces, on the command line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dyorc.core.counts import count
from dyorc.system.finite_option import finite
from loadgen import options
from loadgen.traces import TraceKind, TracePlan, draw_trace


def trace_command(
    kind: Annotated[TraceKind, typer.Argument(help="How the rate changes; for drift, where requests go.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The CSV file to write.")],
    duration: Annotated[float, typer.Option("--duration", callback=finite, help="Seconds that the trace covers.")] = 3600.0,
    rate: Annotated[float, typer.Option("--rate", callback=finite, help="Mean requests per second.")] = 6.0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same trace.")] = 0,
    workflow: Annotated[
        list[str] | None, typer.Option("--workflow", help="NAME or NAME=SHARE, a workflow and its share; may be repeated.")
    ] = None,
) -> None:
    """Draws a trace: a file of times, workflows and branches, for `run --arrivals trace` and `dyorc simulate scaling`."""
    from dyorc.traffic.request_traces import write_trace

    with options.errors_as_one_line():
        weights = _weights(workflow or [""])
        requests = draw_trace(TracePlan(kind=kind, duration_s=duration, rate_rps=rate, seed=seed, weights=weights))
        write_trace(out, requests)
    typer.echo(f"{count(len(requests), 'request')} in {out}")


def _weights(texts: Sequence[str]) -> dict[str, float]:
    weights: dict[str, float] = {}
    for text in texts:
        name, equals, share = text.partition("=")
        try:
            weights[name] = float(share) if equals else 1.0
        except ValueError:
            raise ValueError(f"--workflow is {text!r}, expected NAME or NAME=SHARE") from None
    return weights
