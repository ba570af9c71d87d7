"""Ray Serve's autoscaling options, under their names, as bounds of a program.

| option | becomes |
|---|---|
| `min_replicas`, `max_replicas` | bounds; 1 and 1 by default, with ``num_replicas="auto"`` 1 and 100 |
| `initial_replicas` | warm replicas at the start |
| `target_ongoing_requests` | calls in flight and waiting for each warm replica. Without it, batches decide ("auto": 2) |
| `upscale_delay_s`, `downscale_delay_s` | delays; 0 and 10 s by default, not 30 and 600 s, which a forecast does not need |
| `downscale_to_zero_delay_s` | delay of the last replica |
| `upscaling_factor`, `downscaling_factor` | fraction of a change that is made at once; also as `upscale_smoothing_factor`, |
| | `downscale_smoothing_factor` and `smoothing_factor`, their old names |
| `cold_delay_s` | DyOrc's own: how long a replica stays parked before its process ends |

Accepted without effect: `metrics_interval_s` and `aggregation_function`, since load is counted where it arises and not sampled;
`look_back_period_s`, since the forecast finds by its errors how far back to look. `policy` is refused: DyOrc decides itself, and
code that never runs would be a trap.
"""

from collections.abc import Mapping
from typing import Any

from dyorc.errors import DefinitionError
from dyorc.scaling.model import Bounds
from dyorc.scaling.value_checks import (
    COUNT,
    OPTIONAL_COUNT,
    OPTIONAL_POSITIVE,
    OPTIONAL_SECONDS,
    POSITIVE,
    POSITIVE_COUNT,
    SECONDS,
    Check,
    is_count,
)

_AUTO: Mapping[str, Any] = {"min_replicas": 1, "max_replicas": 100, "target_ongoing_requests": 2}
"""What ``num_replicas="auto"`` means in Ray Serve."""
_DEFAULTS = Bounds()
_AGGREGATIONS = ("mean", "max", "min")
_AGGREGATION: Check = (
    f"one of {', '.join(_AGGREGATIONS)}",
    lambda value: str(getattr(value, "value", value)).lower() in _AGGREGATIONS,
)

_CHECKS: Mapping[str, Check] = {
    "min_replicas": COUNT,
    "max_replicas": POSITIVE_COUNT,
    "initial_replicas": OPTIONAL_COUNT,
    "target_ongoing_requests": OPTIONAL_POSITIVE,
    "upscale_delay_s": SECONDS,
    "downscale_delay_s": SECONDS,
    "downscale_to_zero_delay_s": OPTIONAL_SECONDS,
    "upscaling_factor": OPTIONAL_POSITIVE,
    "downscaling_factor": OPTIONAL_POSITIVE,
    "upscale_smoothing_factor": OPTIONAL_POSITIVE,
    "downscale_smoothing_factor": OPTIONAL_POSITIVE,
    "smoothing_factor": POSITIVE,
    "cold_delay_s": SECONDS,
    "metrics_interval_s": POSITIVE,
    "look_back_period_s": POSITIVE,
    "aggregation_function": _AGGREGATION,
}


def bounds_of(owner: str, num_replicas: Any, autoscaling_config: Any) -> Bounds:
    """Returns the bounds of a program: a fixed number of replicas, or what `autoscaling_config` says.

    Args:
        owner: Who declares it, for errors.

    Raises:
        DefinitionError: If an option is unknown, or has a value that it cannot have.
    """
    if num_replicas != "auto" and (not is_count(num_replicas) or num_replicas < 1):
        raise DefinitionError(f'{owner}: num_replicas is {num_replicas!r}, expected a whole number of at least 1, or "auto"')
    if autoscaling_config is None:
        if num_replicas == "auto":
            return _bounds(owner, _AUTO)
        return Bounds(min_warm=num_replicas, max_replicas=num_replicas)
    if num_replicas not in (1, "auto"):
        raise DefinitionError(
            f"{owner}: num_replicas is {num_replicas!r}, with autoscaling_config; set one of them, "
            'or num_replicas="auto" for Ray Serve\'s defaults'
        )
    if not isinstance(autoscaling_config, Mapping):
        raise DefinitionError(f"{owner}: autoscaling_config is {autoscaling_config!r}, expected a mapping of options")
    _check(owner, autoscaling_config)
    return _bounds(owner, {**_AUTO, **autoscaling_config} if num_replicas == "auto" else autoscaling_config)


def _check(owner: str, options: Mapping[Any, Any]) -> None:
    for name, value in options.items():
        if name == "policy":
            raise DefinitionError(f"{owner}: autoscaling_config has a policy; DyOrc decides itself and would not call it")
        if name not in _CHECKS:
            raise DefinitionError(f"{owner}: autoscaling_config has no option {name!r}; known options: {sorted(_CHECKS)}")
        expected, is_valid = _CHECKS[name]
        if not is_valid(value):
            raise DefinitionError(f"{owner}: autoscaling_config: {name} is {value!r}, expected {expected}")


def _bounds(owner: str, options: Mapping[str, Any]) -> Bounds:
    least, most, first = options.get("min_replicas", 1), options.get("max_replicas", 1), options.get("initial_replicas")
    if least > most:
        raise DefinitionError(
            f"{owner}: autoscaling_config: min_replicas is {least}, expected at most max_replicas, which is {most}"
        )
    if first is not None and not least <= first <= most:
        raise DefinitionError(
            f"{owner}: autoscaling_config: initial_replicas is {first}, expected min_replicas to max_replicas: {least} to {most}"
        )
    smoothing = options.get("smoothing_factor", 1.0)
    return Bounds(
        min_warm=least,
        max_replicas=most,
        initial_warm=first,
        target_calls=options.get("target_ongoing_requests"),
        upscale_delay_s=options.get("upscale_delay_s", _DEFAULTS.upscale_delay_s),
        downscale_delay_s=options.get("downscale_delay_s", _DEFAULTS.downscale_delay_s),
        to_zero_delay_s=options.get("downscale_to_zero_delay_s"),
        cold_delay_s=options.get("cold_delay_s", _DEFAULTS.cold_delay_s),
        upscaling_factor=options.get("upscaling_factor") or options.get("upscale_smoothing_factor") or smoothing,
        downscaling_factor=options.get("downscaling_factor") or options.get("downscale_smoothing_factor") or smoothing,
    )


def options_of(bounds: Bounds) -> dict[str, Any]:
    """Returns `autoscaling_config` for bounds that `bounds_of` returns."""
    options = {
        "min_replicas": bounds.min_warm,
        "max_replicas": bounds.max_replicas,
        "initial_replicas": bounds.initial_warm,
        "target_ongoing_requests": bounds.target_calls,
        "upscale_delay_s": bounds.upscale_delay_s,
        "downscale_delay_s": bounds.downscale_delay_s,
        "downscale_to_zero_delay_s": bounds.to_zero_delay_s,
        "cold_delay_s": bounds.cold_delay_s,
        "upscaling_factor": bounds.upscaling_factor,
        "downscaling_factor": bounds.downscaling_factor,
    }
    return {name: value for name, value in options.items() if value is not None}
