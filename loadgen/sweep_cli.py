"""``python -m loadgen sweep``: finds the highest rate at which a target meets its objective, on the command line."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from dyorc.system.finite_option import finite
from loadgen import options
from loadgen.objectives import Objective
from loadgen.results import RunResult
from loadgen.sweep import Probe, SweepResult, sweep
from loadgen.tables import milliseconds, percent

_MIN_REQUESTS = 10
"""The fewest requests of a measurement: a share of fewer would say nothing."""


def sweep_command(
    url: options.Url,
    model: options.Model,
    how: options.TargetOptions,
    sent: options.SentOptions,
    load: options.LoadOptions,
    output: options.OutputOptions,
    slo_ms: Annotated[
        float | None, typer.Option("--slo-ms", callback=finite, min=0.001, help="Latency limit in milliseconds.")
    ] = None,
    slo: Annotated[
        list[str] | None,
        typer.Option(
            "--slo",
            help="A limit such as 'first_part_p99<200ms', for latency, first_part or between_parts; may be repeated. "
            "At least one of --slo-ms and --slo is needed.",
        ),
    ] = None,
    start: Annotated[
        float, typer.Option("--start", callback=finite, min=0.001, help="Requests per second to start with.")
    ] = 50.0,
    max_rate: Annotated[
        float, typer.Option("--max-rate", callback=finite, min=0.001, help="The most requests per second.")
    ] = 100_000.0,
    precision: Annotated[
        float, typer.Option("--precision", callback=finite, min=0.001, help="Relative precision of the result, e.g. 0.1.")
    ] = 0.1,
    min_goodput: Annotated[
        float,
        typer.Option(
            "--min-goodput",
            callback=finite,
            min=0.001,
            max=1.0,
            help="The share of all requests that must be answered correctly and in time.",
        ),
    ] = 0.99,
    past_client_limit: Annotated[
        bool,
        typer.Option(
            "--past-client-limit", help="Continue even if the generator may be the limit, as long as the objective is met."
        ),
    ] = False,
    label: options.Label = "",
) -> None:
    """Finds the highest rate at which nearly all requests are answered correctly and in time."""
    from loadgen.run import run
    from loadgen.server_figures import watch_of

    with options.errors_as_one_line():
        if load.arrivals not in (options.ArrivalsKind.POISSON, options.ArrivalsKind.GAMMA, options.ArrivalsKind.CONSTANT):
            raise ValueError(
                f"--arrivals is {load.arrivals}, expected poisson, gamma or constant: a sweep measures one rate at a time"
            )
        objectives = read_objectives(slo or (), is_streamed=how.stream)
        if slo_ms is None and not objectives:
            raise ValueError("no objective is given, expected --slo-ms, --slo or both")
        target = how.spec(url, model)
        requests = sent.requests(target)
        planned = load.load(options.PaceOptions(rate=start, slo_ms=slo_ms), sent.seed)
        server = watch_of(target)

        def measure(rate_rps: float) -> RunResult:
            return run(label or model, target, requests, msgspec.structs.replace(planned, rate_rps=rate_rps), server=server)

        result = sweep(
            measure,
            start_rps=start,
            max_rps=max_rate,
            min_rps=min(start, _MIN_REQUESTS / load.duration),
            precision=precision,
            min_goodput_ratio=min_goodput,
            objectives=objectives,
            label=label or model,
            stop_at_client_limit=not past_client_limit,
            show=None if output.as_json else lambda probe: typer.echo(probe_line(probe)),
        )
        written = msgspec.json.encode(result)
        output.write(written)
        typer.echo(written.decode() if output.as_json else summary(result, slo_ms))


def read_objectives(texts: Sequence[str], *, is_streamed: bool) -> list[Objective]:
    """Reads the objectives of the command line.

    Raises:
        ValueError: If one is malformed, or is about parts that nobody asks for.
    """
    objectives = [Objective.parse(text) for text in texts]
    for objective in objectives:
        if objective.is_about_parts and not is_streamed:
            raise ValueError(f"--slo {objective} is about parts, which only come with --stream")
    return objectives


def probe_line(probe: Probe) -> str:
    """Returns a line about a finished measurement."""
    result = probe.result
    said = "met" if probe.is_met else "missed"
    more = [" (second try)"] if probe.is_repeated else []
    more += [f", {result.counts.wrong} wrong"] if result.counts.wrong else []
    more += ["; the generator may have been the limit"] if probe.is_client_limited else []
    latency = f"p50 {milliseconds(result.latency_ms.p50)} ms, p99 {milliseconds(result.latency_ms.p99)} ms"
    if result.parts is not None:
        latency += f", first part p99 {milliseconds(result.parts.first_part_ms.p99)} ms"
        if result.parts.between_parts_ms is not None:
            latency += f", between parts p99 {milliseconds(result.parts.between_parts_ms.p99)} ms"
    return (
        f"{probe.rate_rps:>10,.1f}/s  {said:<6}  {percent(result.goodput_ratio):>5} % right and in time, {latency}{''.join(more)}"
    )


def summary(result: SweepResult, slo_ms: float | None) -> str:
    """Returns what a sweep found, in words."""
    wanted = ", ".join([*([f"{slo_ms:g} ms"] if slo_ms is not None else []), *result.objectives])
    if not result.highest_rps:
        return f"{result.label}: no rate meets the objective of {wanted} ({result.reason})"
    return f"{result.label}: {result.highest_rps:,.1f} requests/s within {wanted} ({result.reason})"
