"""``dyorc simulate``: the engine under a virtual clock, on the command line."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dyorc.cli.simulate_scaling import scaling_command
from dyorc.system.finite_option import finite
from dyorc.system.output_option import writable

if TYPE_CHECKING:
    from dyorc.simulation.simulate import SimulationSetting

app = typer.Typer(help="Simulates workloads in virtual time, with the same engine that serves.")


class ArrivalsKind(StrEnum):
    """Arrival processes by name."""

    POISSON = "poisson"
    GAMMA = "gamma"
    CONSTANT = "constant"
    RAMP = "ramp"
    TRACE = "trace"


Replicas = Annotated[int | None, typer.Option(min=1, help="Replicas of each program; the workload's own numbers by default.")]
Requests = Annotated[int, typer.Option(min=2, help="Number of requests; the first tenth is not measured.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same output.")]
Process = Annotated[ArrivalsKind, typer.Option("--arrivals", help="The arrival process.")]
Cv = Annotated[float, typer.Option(callback=finite, min=0.01, help="For gamma: coefficient of variation of the gaps.")]
TraceFile = Annotated[Path | None, typer.Option("--trace", help="For trace: a file of timestamps (docs/reference/loadgen.md).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback(invoke_without_command=True)
def simulate_one(
    context: typer.Context,
    workload: Annotated[
        str, typer.Option(help="guard, cascade, router, halting, fanout, agent, nested, coin, mixture, captions, chat or relay.")
    ] = "guard",
    policy: Annotated[
        str, typer.Option(help="timer, timer:SECONDS, greedy, hold, speculate, speculate:DISCIPLINE or oracle.")
    ] = "speculate",
    rate: Annotated[float | None, typer.Option(callback=finite, min=0.001, help="Requests a second on average.")] = None,
    load: Annotated[
        float | None, typer.Option(callback=finite, min=0.001, help="Rate as a fraction of saturation; 0.5 if neither is given.")
    ] = None,
    replicas: Replicas = None,
    requests: Requests = 4000,
    seed: Seed = 0,
    arrivals: Process = ArrivalsKind.POISSON,
    cv: Cv = 4.0,
    trace: TraceFile = None,
    as_json: AsJson = False,
) -> None:
    """Simulates one workload under one policy."""
    if context.invoked_subcommand is not None:
        return
    from dyorc.simulation.simulate import simulate

    if rate is None and load is None:
        load = 0.5
    result = simulate(
        workload,
        policy,
        rate_rps=rate,
        load=load,
        replicas=replicas,
        num_requests=requests,
        seed=seed,
        setting=_setting(arrivals, cv, trace),
    )
    if as_json:
        print(json.dumps(result.as_row()))
        return
    print(_table([result.as_row()]))


@app.command("compare")
def compare_all(
    workload: Annotated[list[str] | None, typer.Option(help="A workload; may be repeated; all by default.")] = None,
    policy: Annotated[list[str] | None, typer.Option(help="A policy; may be repeated; all by default.")] = None,
    load: Annotated[
        list[float] | None, typer.Option(callback=finite, min=0.001, help="A fraction of saturation; may be repeated.")
    ] = None,
    replicas: Replicas = None,
    requests: Requests = 4000,
    seed: Seed = 0,
    arrivals: Process = ArrivalsKind.POISSON,
    cv: Cv = 4.0,
    trace: TraceFile = None,
    processes: Annotated[int, typer.Option(min=1, help="Processes that share the runs.")] = 1,
    picture: Annotated[
        Path | None, typer.Option(callback=writable, help="Draw latency against load into this file (needs matplotlib).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulates every workload under every policy at several loads."""
    from dyorc.simulation.pictures import draw_latencies
    from dyorc.simulation.policies import POLICIES
    from dyorc.simulation.simulate import LOADS, compare
    from dyorc.simulation.simulate import as_json as rows_as_json
    from dyorc.simulation.workloads import WORKLOADS

    rows = list(
        compare(
            workload or tuple(WORKLOADS),
            policy or tuple(POLICIES),
            load or LOADS,
            replicas=replicas,
            num_requests=requests,
            seed=seed,
            setting=_setting(arrivals, cv, trace),
            num_processes=processes,
        )
    )
    if picture is not None:
        draw_latencies(rows, picture)
    if as_json:
        print(rows_as_json(rows))
        return
    print(_table(rows))


app.command("scaling")(scaling_command)


def _setting(kind: ArrivalsKind, cv: float, trace: Path | None) -> "SimulationSetting":
    from dyorc.simulation.simulate import SimulationSetting
    from dyorc.traffic.arrivals import Constant, Gamma, Poisson, Ramp, Trace

    match kind:
        case ArrivalsKind.POISSON:
            return SimulationSetting(arrivals=Poisson())
        case ArrivalsKind.GAMMA:
            return SimulationSetting(arrivals=Gamma(cv))
        case ArrivalsKind.CONSTANT:
            return SimulationSetting(arrivals=Constant())
        case ArrivalsKind.RAMP:
            return SimulationSetting(arrivals=Ramp())
        case ArrivalsKind.TRACE:
            if trace is None:
                raise typer.BadParameter("--arrivals trace needs --trace FILE")
            return SimulationSetting(arrivals=Trace.read(trace))


_COLUMNS = {
    "workload": "workload",
    "load": "load",
    "policy": "policy",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "p50_vs_oracle": "/oracle",
    "p99_vs_oracle": "/oracle",
    "mean_batch_size": "batch",
    "device_time_per_request_ms": "device ms",
    "wasted_ratio": "wasted",
    "squashes": "squashes",
    "throughput_rps": "req/s",
}


def _table(rows: list[dict[str, Any]]) -> str:
    """Returns columns as wide as they need to be: piped output must not be cut off."""
    names = [name for name in _COLUMNS if rows and rows[0].get(name) is not None]
    lines = [[_COLUMNS[name] for name in names]]
    lines += [[f"{row[name]:.2f}" if isinstance(row[name], float) else str(row[name]) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines)
