"""``python -m loadgen compare``: several targets in turns, on the command line."""

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
import typer

from loadgen import options
from loadgen.compare import Comparison, compare, comparison_table
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.results import RunResult
from loadgen.tables import milliseconds
from loadgen.targets.base import TargetSpec


def compare_command(
    target: Annotated[list[str], typer.Option("--target", help="LABEL=URL#MODEL; at least two. grpc:// or grpcs:// for gRPC.")],
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often each is measured.")] = 3,
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
    """Measures several targets in turns under the same load, and sets them side by side."""
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
        specs: dict[str, TargetSpec] = {}
        for label, (url, model, scheme) in named_targets(target).items():
            specs[label] = options.target_of(
                url,
                model,
                protocol=scheme or protocol,
                codec=codec,
                batch_dim=batch_dim,
                header=header,
                max_connections=max_connections,
                ca=ca,
                cert=cert,
                key=key,
            )
        sent = options.pool_of(next(iter(specs.values())), pool=pool, shape=shape, seed=seed)  # the same for all
        measures = {label: _measure(label, spec, sent, load) for label, spec in specs.items()}
        found = compare(measures, num_rounds=rounds, show=None if as_json else lambda result: typer.echo(round_line(result)))
        written = msgspec.json.encode(found)
        if out is not None:
            out.write_bytes(written + b"\n")
        typer.echo(written.decode() if as_json else said(found))


def named_targets(targets: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """Each ``label=url#model`` by its label: the URL, the model, and the protocol if ``grpc://`` or ``grpcs://`` names it.

    Raises:
        ValueError: If one is malformed, or a label comes twice.
    """
    found: dict[str, tuple[str, str, str]] = {}
    for target in targets:
        label, equals, rest = target.partition("=")
        url, sharp, model = rest.rpartition("#")
        if not (equals and sharp and label and url and model):
            raise ValueError(f"--target is {target!r}, expected LABEL=URL#MODEL")
        if label in found:
            raise ValueError(f"the label {label!r} comes twice, expected different ones")
        found[label] = (url, model, "grpc" if url.startswith(("grpc://", "grpcs://")) else "")
    if len(found) < 2:
        raise ValueError(f"{len(found)} targets given, expected at least two")
    return found


def round_line(result: RunResult) -> str:
    """One measurement in a line, when it is done."""
    latency = f"p50 {milliseconds(result.latency_ms.p50)} ms, p99 {milliseconds(result.latency_ms.p99)} ms"
    return f"{result.label}: {latency}, {result.throughput_rps:,.1f} requests/s"


def said(found: Comparison) -> str:
    """The table, and what it shows."""
    return f"\n{comparison_table(found)}\nMedians of {found.num_rounds} rounds; spread: largest / smallest - 1; x: to the first."


def _measure(label: str, spec: TargetSpec, pool: Pool, load: Load) -> Callable[[int], RunResult]:
    from loadgen.run import run
    from loadgen.server_figures import StatisticsWatch

    server = StatisticsWatch(spec) if spec.protocol == "http" else None

    def measure(_: int) -> RunResult:
        return run(label, spec, pool, load, server=server)

    return measure
