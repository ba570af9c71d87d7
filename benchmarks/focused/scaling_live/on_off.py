"""The on/off load, and the constant one after it: DyOrc, and Ray Serve with its autoscaler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.focused import turns
from benchmarks.focused.ray_serve_server import ray_serve
from benchmarks.focused.scaling_live import watch
from benchmarks.focused.scaling_live.settings import INFER_PATH, MAX_REPLICAS, MIN_REPLICAS, OPTIONS_VARIABLE, REPLICAS_PATH
from benchmarks.focused.scaling_live.traffic import OnOff, as_figures, guarded_pool, send_on_off, send_steadily
from benchmarks.focused.scaling_live.watch import Sample, Watch
from benchmarks.focused.turns import System
from benchmarks.serving import Address, serving
from dyorc.protocol.api_paths import SCALING
from loadgen.targets.base import TargetSpec

APP = f"{Path(__file__).with_name('guarded_app.py')}:guarded"

_PEER = "benchmarks.focused.scaling_live.ray_serve_app"
_NUM_CPUS = "6"
"""Logical ones: for all replicas that there may be, the ingress, and one to spare."""
_SETTLED_S = 15.0
_PUSH_INTERVALS = (
    "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S",
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S",
)


THRIFTY = {"DYORC_SCALING__WAIT_COST": "1.25", "DYORC_SCALING__KEEP_MARGIN": "1"}
"""That a request waits for a replica counts little more than that a replica waits for requests: none is kept in a pause."""

DYORC: Mapping[str, System] = {"dyorc": turns.dyorc(APP), "dyorc_thrifty": turns.dyorc(APP, **THRIFTY)}


def _peer(options: str, **environment: str) -> System:
    system = ray_serve(_PEER, "default", "--num-cpus", _NUM_CPUS)
    return System(command=system.command, environment={OPTIONS_VARIABLE: options, **environment})


PEERS: Mapping[str, System] = {
    "ray_serve_default": _peer("{}"),
    "ray_serve_zero_delay": _peer('{"upscale_delay_s": 0, "downscale_delay_s": 0}'),
    "ray_serve_quick": _peer(
        '{"upscale_delay_s": 0, "downscale_delay_s": 2, "look_back_period_s": 1}',
        **dict.fromkeys(_PUSH_INTERVALS, "0.2"),
    ),
}
"""The last has DyOrc's delay before replicas go, and learns of the load fifty times as often as by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """The constant load."""

    rate_rps: float
    duration_s: float


def measure_dyorc(name: str, load: OnOff, steady: Steady) -> dict[str, object]:
    """Returns the figures of both loads."""
    system = DYORC[name]
    with serving(system.command, system.environment) as (address, _):
        with Watch(address, SCALING, watch.read_dyorc) as seen:
            result = send_on_off(name, dyorc_spec(address), guarded_pool(), load)
        figures = as_figures(result) | _replicas(seen.samples, load.duration_s)
        figures["outside_bounds"] = watch.outside(seen.samples, MIN_REPLICAS, MAX_REPLICAS)
        turns.log(f"{name:<20} {figures}")
        if steady.duration_s > 0:
            figures["steady"] = _measure_steady(address, steady)
            turns.log(f"{name}, steady: {figures['steady']}")
    return figures


def _measure_steady(address: Address, steady: Steady) -> dict[str, object]:
    with Watch(address, SCALING, watch.read_dyorc) as seen:
        result = send_steadily("steady", dyorc_spec(address), guarded_pool(), steady.rate_rps, steady.duration_s)
    begin_s, end_s = seen.samples[0].at_s, seen.samples[0].at_s + steady.duration_s
    settled = [sample for sample in seen.samples if begin_s + _SETTLED_S <= sample.at_s < end_s]
    ups, downs = watch.changes(watch.wanted_courses(settled)) if settled else (0, 0)
    return as_figures(result) | {"ups_after_15_s": ups, "downs_after_15_s": downs}


def measure_peer(name: str, load: OnOff) -> dict[str, object]:
    """Returns the figures of the on/off load on Ray Serve."""
    system = PEERS[name]
    with serving(system.command, system.environment) as (address, _):
        spec = TargetSpec(protocol="raw", url=address.url, model=INFER_PATH, codec="benchmarks.wire")
        with Watch(address, REPLICAS_PATH, watch.read_ray_serve) as seen:
            result = send_on_off(name, spec, guarded_pool(), load)
    figures = as_figures(result) | _replicas(seen.samples, load.duration_s)
    turns.log(f"{name:<20} {figures}")
    return figures


def dyorc_spec(address: Address) -> TargetSpec:
    return TargetSpec(protocol="http", url=address.url, model="guarded")


def _replicas(samples: Sequence[Sample], duration_s: float) -> dict[str, object]:
    ups, downs = watch.changes(watch.warm_courses(samples))
    return {"ups": ups, "downs": downs, "replica_seconds": watch.replica_seconds(samples, duration_s)}
