"""``python -m loadgen compare``: several targets in turns, on the command line."""

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
import typer

from dyorc.core.counts import count
from loadgen import options
from loadgen.compare import Comparison, compare, comparison_table
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.results import RunResult
from loadgen.tables import milliseconds
from loadgen.targets.base import TargetSpec


def compare_command(
    target: Annotated[
        list[str], typer.Option("--target", help="LABEL=URL#MODEL; give at least two. Use grpc:// or grpcs:// for gRPC.")
    ],
    how: options.TargetOptions,
    sent: options.SentOptions,
    pace: options.PaceOptions,
    load: options.LoadOptions,
    output: options.OutputOptions,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Measurements of each target.")] = 3,
) -> None:
    """Measures several targets in turn under the same load, and compares them."""
    with options.errors_as_one_line():
        planned = load.load(pace, sent.seed)
        specs = {label: how.spec(url, model, scheme) for label, (url, model, scheme) in named_targets(target).items()}
        requests = sent.requests(next(iter(specs.values())))  # the same for all
        measures = {label: _measure(label, spec, requests, planned) for label, spec in specs.items()}
        comparison = compare(measures, num_rounds=rounds, show=None if output.as_json else _show)
        written = msgspec.json.encode(comparison)
        output.write(written)
        typer.echo(written.decode() if output.as_json else comparison_text(comparison))


def named_targets(targets: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """Returns each ``label=url#model`` by its label: URL, model, and the protocol if ``grpc://`` or ``grpcs://`` names it.

    Raises:
        ValueError: If one is malformed, or a label is given twice.
    """
    by_label: dict[str, tuple[str, str, str]] = {}
    for target in targets:
        label, equals, rest = target.partition("=")
        url, sharp, model = rest.rpartition("#")
        if not (equals and sharp and label and url and model):
            raise ValueError(f"--target is {target!r}, expected LABEL=URL#MODEL")
        if label in by_label:
            raise ValueError(f"the label {label!r} was given twice, expected different labels")
        by_label[label] = (url, model, options.protocol_of(url))
    if len(by_label) < 2:
        raise ValueError(f"{len(by_label)} targets given, expected at least two")
    return by_label


def _show(result: RunResult) -> None:
    typer.echo(round_line(result))


def round_line(result: RunResult) -> str:
    """Returns a line about a finished measurement."""
    latency = f"p50 {milliseconds(result.latency_ms.p50)} ms, p99 {milliseconds(result.latency_ms.p99)} ms"
    errors = "".join(f"; {number:,} x {error}" for error, number in list(result.errors.items())[:3])
    return f"{result.label}: {latency}, {result.throughput_rps:,.1f} right answers/s{errors}"


def comparison_text(comparison: Comparison) -> str:
    """Returns the table and what it means."""
    legend = "spread: largest / smallest - 1; x: relative to the first target."
    return f"\n{comparison_table(comparison)}\nMedians of {count(comparison.num_rounds, 'round')}; {legend}"


def _measure(label: str, spec: TargetSpec, pool: Pool, load: Load) -> Callable[[int], RunResult]:
    from loadgen.run import run
    from loadgen.server_figures import watch_of

    server = watch_of(spec)

    def measure(_: int) -> RunResult:
        return run(label, spec, pool, load, server=server)

    return measure
