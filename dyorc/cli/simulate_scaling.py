"""``dyorc simulate scaling``: replays a trace under policies that scale, on the command line."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dyorc.errors import InvalidInputError
from dyorc.system.finite_option import finite
from dyorc.system.output_option import writable

if TYPE_CHECKING:
    from dyorc.simulation.scaling.scaling_loop import Limits
    from dyorc.simulation.scaling.scaling_results import ScalingResult


def scaling_command(
    trace: Annotated[
        Path, typer.Option(help="A file of requests (docs/reference/loadgen.md); `python -m loadgen trace` draws some.")
    ],
    policy: Annotated[
        list[str] | None, typer.Option(help="fixed, reactive, reactive0, keda, knative, predictive or oracle; may be repeated.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Replay every policy.")] = False,
    slo: Annotated[
        float | None, typer.Option(callback=finite, min=0.001, help="Limit in seconds; by default 5 x the median when warm.")
    ] = None,
    replicas: Annotated[int, typer.Option(min=1, help="For fixed: replicas of each program.")] = 2,
    min_warm: Annotated[int, typer.Option(min=0, help="Replicas of each program that are always warm.")] = 0,
    max_replicas: Annotated[int, typer.Option(min=1, help="Most replicas of each program.")] = 8,
    cold_start: Annotated[float, typer.Option(callback=finite, min=0.001, help="Seconds from cold to warm.")] = 3.0,
    parked_start: Annotated[float, typer.Option(callback=finite, min=0.001, help="Seconds from parked to warm.")] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="For branches that the trace leaves open.")] = 0,
    picture: Annotated[
        Path | None, typer.Option(callback=writable, help="Draw replicas and misses into this file (needs matplotlib).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Replays a trace while a policy scales the programs: latency, misses caused by cold starts, and replica-seconds."""
    from dyorc.simulation.pictures import draw_scaling
    from dyorc.simulation.scaling.policy_comparison import POLICIES, compare
    from dyorc.simulation.scaling.replay import Scene
    from dyorc.traffic.request_traces import read_trace

    if every == bool(policy):
        raise InvalidInputError("choose policies: either --policy NAME, once or more, or --all")
    scene = Scene(requests=read_trace(trace), limits=_limits(min_warm, max_replicas, cold_start, parked_start), seed=seed)
    comparison = compare(scene, POLICIES if every else policy or (), slo_s=slo, num_fixed=replicas)
    if picture is not None:
        draw_scaling({trace.stem: comparison}, picture)
    if as_json:
        print(json.dumps({"trace": str(trace), **comparison.as_object()}))
        return
    limits = ", ".join(f"{name} {limit_s:.3g} s" for name, limit_s in comparison.slo_s.items())
    print(f"limits: {limits}\n{table(list(comparison.results.values()))}")


def table(results: "Sequence[ScalingResult]") -> str:
    """Returns results as text, a line for each policy."""
    lines = [("policy", "p50 ms", "p99 ms", "cold misses", "misses", "warm s", "parked s", "turns")]
    for result in results:
        times = (f"{result.p50_ms:.0f}", f"{result.p99_ms:.0f}", str(result.cold_misses), str(result.misses))
        lines.append((result.policy, *times, f"{result.warm_s:.0f}", f"{result.parked_s:.0f}", str(result.turns)))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines)


def _limits(min_warm: int, max_replicas: int, cold_start_s: float, parked_start_s: float) -> "Limits":
    from dyorc.scaling.model import Bounds
    from dyorc.simulation.scaling.scaling_loop import Limits
    from dyorc.simulation.scaling.simulated_replicas import StartTimes

    if min_warm > max_replicas:
        raise InvalidInputError(f"--min-warm is {min_warm}, expected at most the {max_replicas} of --max-replicas")
    times = StartTimes(
        cold_to_warm_s=cold_start_s,
        cold_to_parked_s=max(cold_start_s - parked_start_s, cold_start_s / 2),
        parked_to_warm_s=parked_start_s,
    )
    return Limits(times=times, bounds=Bounds(min_warm=min_warm, max_replicas=max_replicas))
