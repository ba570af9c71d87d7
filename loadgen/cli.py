"""``python -m loadgen``: measures servers of tensor programs."""

import json
import sys
from typing import Annotated

import msgspec
import typer

from loadgen import options
from loadgen.compare_cli import compare_command
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.report_cli import report_command
from loadgen.results import RunResult
from loadgen.sweep_cli import sweep_command
from loadgen.targets.base import TargetSpec

app = typer.Typer(
    help="Sends requests at planned times, checks the answers, and says what came of it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.command("run")
def run_command(
    url: options.Url,
    model: options.Model,
    label: Annotated[str, typer.Option("--label", help="How to call the target; its model by default.")] = "",
    protocol: options.ProtocolName = "http",
    codec: options.Codec = "",
    batch_dim: options.BatchDim = False,
    header: options.Headers = None,
    max_connections: options.MaxConnections = 1024,
    ca: options.CaFile = None,
    cert: options.CertFile = None,
    key: options.KeyFile = None,
    pool: options.PoolFile = None,
    shape: options.Shapes = None,
    seed: options.Seed = 0,
    rate: options.Rate = None,
    clients: options.Clients = None,
    arrivals: options.ArrivalsName = options.ArrivalsKind.POISSON,
    cv: options.Cv = 4.0,
    trace: options.TraceFile = None,
    start_rate: options.StartRate = 0.0,
    duration: options.Duration = 5.0,
    warm_up: options.WarmUp = 1.0,
    drain: options.Drain = 5.0,
    slo_ms: options.SloMs = None,
    workers: options.Workers = 1,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Measures one target under one load."""
    with options.told_plainly():
        load = options.load_of(
            rate=rate,
            clients=clients,
            arrivals=arrivals,
            cv=cv,
            trace=trace,
            start_rate=start_rate,
            duration=duration,
            warm_up=warm_up,
            drain=drain,
            slo_ms=slo_ms,
            workers=workers,
            seed=seed,
        )
        target = options.target_of(
            url,
            model,
            protocol=protocol,
            codec=codec,
            batch_dim=batch_dim,
            header=header,
            max_connections=max_connections,
            ca=ca,
            cert=cert,
            key=key,
        )
        sent = options.pool_of(target, pool=pool, shape=shape, seed=seed)
        result = _measure(label or model, target, sent, load, is_shown=not as_json)
        written = msgspec.json.encode(result)
        if out is not None:
            out.write_bytes(written + b"\n")
    _tell(result, written if as_json else None)


def _measure(label: str, target: TargetSpec, pool: Pool, load: Load, *, is_shown: bool) -> RunResult:
    from loadgen.display import Display
    from loadgen.run import run
    from loadgen.server_figures import StatisticsWatch

    server = StatisticsWatch(target) if target.protocol == "http" else None
    if not is_shown:
        return run(label, target, pool, load, server=server)
    with Display(label, load) as display:
        return run(label, target, pool, load, show=display.show, server=server)


def _tell(result: RunResult, written: bytes | None) -> None:
    from loadgen.tables import run_table

    if written is not None:
        print(written.decode())
        return
    print(run_table([result]))


@app.command("limit")
def limit_command(
    duration: Annotated[float, typer.Option("--duration", min=0.5, help="Seconds for each rate.")] = 3.0,
) -> None:
    """Finds the highest rate that one worker can send on this machine, over HTTP and gRPC; the last line is JSON."""
    from loadgen.limit import find_limits

    with options.told_plainly():
        found = find_limits(duration, lambda line: print(line, flush=True))
    print(json.dumps(found))


app.command("sweep")(sweep_command)
app.command("compare")(compare_command)
app.command("report")(report_command)


def main() -> None:
    """The command."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
